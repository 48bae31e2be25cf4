"""The Python API under drawn models, options and data: calls succeed with finite numbers and the right step, or are
refused in one clear sentence and leave everything as it was.

Case number i of a run with seed s is case 0 of a run with seed s + i: `python -m tests.trial api --seed S --counts 1`
repeats it.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import altmin

from .drawn_models import Drawn, draw_model
from .drawn_options import ADAM, METHOD, draw_batch, draw_options, good_batch, words
from .drawn_parts import Parts, draw_parts
from .judge import REFUSED, Broken, Judge, all_finite, short


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Runs cases until at least `count` calls of the API were made, which are counted, with those refused."""
    counters = {"calls": 0, "refused": 0, "cases": 0, "steps compared with backprop": 0}
    while counters["calls"] < count:
        judge = case(seed + counters["cases"], failures)
        counters["cases"] += 1
        counters["calls"] += judge.calls
        counters["refused"] += judge.refused
        counters["steps compared with backprop"] += judge.compared
    return counters


def case(seed: int, failures: list[str]) -> "CaseJudge":
    """One model, and several calls that train it in one of the ways that the library has."""
    r = Random(seed)
    judge = CaseJudge(f"api --seed {seed}", failures)
    with torch.random.fork_rng(devices=()), ended(judge):
        torch.manual_seed(seed)
        drawn = draw_model(r)
        judge.drawn.append(drawn.words)
        way: Callable[[Random, CaseJudge, Drawn, float], None]
        way = r.choice((_trained, _trained, _trained, _trained, _by_name, _together))
        way(r, judge, drawn, r.choice((0.0, 0.1, 0.3)))
        if drawn.exact and r.random() < 0.3:
            _compare(r, judge, drawn)
    return judge


@contextlib.contextmanager
def ended(judge: Judge) -> Iterator[None]:
    """A case that breaks off outside of a judged call has failed too."""
    try:
        yield
    except Broken:
        pass
    except Exception as error:
        judge.fail("the case", f"broke off by {short(error)}")


class CaseJudge(Judge):
    """A judge that also counts the steps compared with backprop."""

    compared = 0


def _held(am: Any) -> Callable[[], Any]:
    """All that a refused call must leave as it was."""
    return lambda: (am.model, am.state_dict())


def _trained(r: Random, judge: CaseJudge, drawn: Drawn, wrong: float) -> None:
    parts = draw_parts(r, judge, drawn, wrong)
    am = judge.call(
        "AltMin",
        lambda: altmin.AltMin(drawn.model, parts.loss, parts.codes, parts.weights, parts.penalty),
        lambda: drawn.model,
    )
    if am is REFUSED:
        if drawn.exact and parts.good:
            judge.fail("AltMin", "was refused though nothing is wrong with it")
        return
    if parts.must:
        judge.fail("AltMin", "took an option that is no possible number")
    _calls(r, judge, drawn, am, parts, wrong)


def _calls(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    others = (_gather, _apply, _end_epoch, _round_trip, _load_wrong, _audit, _objective, _split, _fit)
    for _ in range(r.randint(2, 6)):
        call = _step if r.random() < 0.5 else r.choice(others)
        call(r, judge, drawn, am, parts, wrong)


def _step(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float, name: str = "step") -> None:
    x, y, said, fits = draw_batch(r, drawn, parts.labels, wrong)
    judge.drawn.append(f"{name} with {said}")
    metrics = judge.call(name, lambda: getattr(am, name)(x, y), _held(am), (x, y))
    if metrics is REFUSED:
        if drawn.exact and parts.good and fits and len(x) > 1 and not _small(am):
            judge.fail(name, "was refused though nothing is wrong with it")
        return
    numbers = judge.call("the metrics", lambda: _numbers(metrics))
    if numbers is not REFUSED and not all(math.isfinite(n) for n in numbers):
        judge.fail(name, f"returned metrics that are not finite: {numbers}")


def _small(am: Any) -> bool:
    """Whether numbers may leave the range of the type by themselves."""
    return any(p.abs().max() > 1e3 for p in am.model.parameters() if p.numel())


def _numbers(metrics: Any) -> list[float]:
    """The loss and what else a step's metrics have."""
    names = [name for name in ("objective", "penalty") if isinstance(getattr(metrics, name, None), float)]
    rows = [row for name in ("residuals", "movements") for row in getattr(metrics, name, [])]
    return [float(metrics.loss), *(getattr(metrics, name) for name in names), *rows]


def _gather(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    _step(r, judge, drawn, am, parts, wrong, "gather")


def _apply(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    judge.drawn.append("apply")
    judge.call("apply", lambda: _without_waiting(am.apply), _held(am))


def _without_waiting(function: Callable[[], Any]) -> Any:
    """That nothing was gathered is a RuntimeError: a call at the wrong time, with no argument to be wrong."""
    try:
        return function()
    except RuntimeError as error:
        if "nothing has been gathered" in str(error):
            raise ValueError(str(error)) from error
        raise


def _end_epoch(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    judge.drawn.append("end_epoch")
    judge.call("end_epoch", lambda: _without_waiting(am.end_epoch), _held(am))


def _round_trip(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    judge.drawn.append("state_dict and load_state_dict")
    state = copy.deepcopy(judge.call("state_dict", am.state_dict, _held(am)))
    judge.call("load_state_dict", lambda: am.load_state_dict(state), _held(am))
    if state is not REFUSED and not _same(am.state_dict(), state):
        judge.fail("load_state_dict", "of a state gives another state")


def _same(a: Any, b: Any) -> bool:
    from .judge import picture

    return bool(picture(a) == picture(b))


def _load_wrong(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    state = copy.deepcopy(am.state_dict())
    how = _spoil(r, state)
    given = r.choice((None, [], {}, "state", 3)) if r.random() < 0.2 else state
    judge.drawn.append(
        f"load_state_dict of {'a state without or with other ' + how if given is state else repr(given)}"
    )
    good, batch = copy.deepcopy(am.state_dict()), good_batch(r, drawn, parts.labels, 4)
    if judge.call("load_state_dict", lambda: am.load_state_dict(given), _held(am)) is not REFUSED and drawn.good:
        judge.call("a step after load_state_dict of a wrong state", lambda: am.step(*batch), _held(am))
        am.load_state_dict(good)


def _spoil(r: Random, tree: Any) -> str:
    """Removes or replaces one entry somewhere in nested state; says which."""
    if isinstance(tree, dict) and tree:
        key = r.choice(sorted(tree, key=str))
        if isinstance(tree[key], dict | list) and tree[key] and r.random() < 0.7:
            return f"{key}.{_spoil(r, tree[key])}"
        if r.random() < 0.5:
            del tree[key]
        else:
            tree[key] = r.choice((None, "text", math.nan, torch.zeros(3), torch.zeros(0), {}, [], -1))
        return str(key)
    if isinstance(tree, list) and tree:
        i = r.randrange(len(tree))
        if isinstance(tree[i], dict | list) and tree[i]:
            return f"{i}.{_spoil(r, tree[i])}"
        tree.pop(i)
        return str(i)
    return "nothing"


def _audit(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    x, y, said, _ = draw_batch(r, drawn, parts.labels, wrong)
    judge.drawn.append(f"audit with {said}")
    found = judge.call("audit", lambda: altmin.audit(am, x, y), _held(am), (x, y))
    if found is not REFUSED and not found.clean:
        judge.fail("audit", f"found a graph that crosses a block: {' '.join(str(found).split())}")


def _split(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    judge.drawn.append("split")
    judge.call("split", lambda: str(altmin.split(drawn.model)), _held(am))


def _objective(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    """f at the encoded codes is the loss; with drawn mistakes in codes, data or mu."""
    x, y = good_batch(r, drawn, parts.labels, 3)
    chain, codes, value = am.chain, list[Any](), x
    if drawn.good:
        with torch.no_grad():
            for block, p in zip(chain, chain.parameters(), strict=True):
                value = block.forward(p, value)[0]
                codes.append(value)
    codes, mu, said = codes[:-1], r.choice((0.5, 1, 10.0)), "right codes"
    if r.random() < wrong and codes:
        said = r.choice(("no codes", "a code of other shape", "None among the codes", "mu as a word"))
        codes = [] if said == "no codes" else codes
        codes[-1:] = [codes[-1][:, :0]] if said == "a code of other shape" else codes[-1:]
        codes[-1:] = [None] if said == "None among the codes" else codes[-1:]
        mu = "1" if said == "mu as a word" else mu  # type: ignore[assignment]
    judge.drawn.append(f"objective with {said}")
    loss = parts.loss or nn.CrossEntropyLoss()
    judge.call("objective", lambda: altmin.objective(chain, codes, x, y, mu, loss), _held(am), (x, y))


FIT = {
    "epochs": (1, 2),
    "batch_size": (2, 3, 100),
    "seed": (0, 3),
    "schedule": ("constant", "cosine", "linear/epoch"),
    "eval_batches": ((), (1,), [1, 2]),
}


def _fit(r: Random, judge: CaseJudge, drawn: Drawn, am: Any, parts: Parts, wrong: float) -> None:
    if not drawn.good:
        return
    options, _, _ = draw_options(r, FIT, wrong)
    options = {"epochs": 1, "batch_size": 3, **options}
    train = good_batch(r, drawn, parts.labels, 7)
    test = r.choice((None, good_batch(r, drawn, parts.labels, 4)))
    if r.random() < wrong:
        x, y, said, _ = draw_batch(r, drawn, parts.labels, 1.0)
        train = x, y
        judge.drawn.append(f"fit with {said}, {words(options)}, test {'given' if test else None}")
    else:
        judge.drawn.append(f"fit with 7 samples, {words(options)}, test {'given' if test else None}")
    judge.call("fit", lambda: altmin.fit(am, train, test, **options), _held(am), train, loose=True)


def _by_name(r: Random, judge: CaseJudge, drawn: Drawn, wrong: float) -> None:
    """A method from the registry; backprop gets only data that fit it, since its step is torch's own."""
    name = r.choice(altmin.methods.names())
    odd = r.random() < wrong
    options, _, _ = draw_options(r, {**METHOD, "steps": ADAM["steps"]}, wrong)
    options = {k: v for k, v in options.items() if odd or k in altmin.methods.options(name)}
    if name in ("adam", "adamw", "kfac", "muon", "sgd", "shampoo", "soap"):  # where torch's own step has the word
        options = {k: v for k, v in options.items() if not isinstance(v, float) or v != 1e38}
    if odd:
        name = r.choice((name, name.replace("a", "x"), "", name.upper()))
    judge.drawn.append(f"methods.create({name!r}, model, {words(options)})")
    method = judge.call("methods.create", lambda: altmin.methods.create(name, drawn.model, **options))
    if method is REFUSED:
        return
    backprop = not name.startswith("am-")
    if backprop and not drawn.exact:
        return
    parts = Parts(good=False)
    for _ in range(r.randint(1, 4)):
        if backprop:
            judge.drawn.append("step")
            x, y = good_batch(r, drawn, True, 4)
            judge.call("step", lambda x=x, y=y: method.step(x, y), lambda: None, (x, y))
        else:
            call = r.choice((_step, _step, _end_epoch, _round_trip, _load_wrong, _fit))
            call(r, judge, drawn, method, parts, wrong)


def _together(r: Random, judge: CaseJudge, drawn: Drawn, wrong: float) -> None:
    """An ensemble of methods on copies of the model."""
    if not drawn.good or drawn.model is None:
        return
    name = r.choice(("am-adam", "am-sgd", "am-mem", "am-mem-fitted", "am-adam", "adam", "sgd", "am-adam-offline"))
    try:
        models = [copy.deepcopy(drawn.model) for _ in range(r.randint(1, 3))]
        members = [altmin.methods.create(name, model, lr=r.choice((1e-3, 0.05))) for model in models]
    except (ValueError, TypeError):  # which `_by_name` judges
        return
    how = "right members"
    if r.random() < wrong:
        spoilt = {
            "no members": [],
            "None": None,
            "one twice": [members[0], members[0]],
            "a model twice": [members[0], altmin.methods.create(name, models[0])],
            "a word": ["am-adam"],
            "another method": [*members, altmin.methods.create("am-mem-offline", altmin.models.mlp(3, (4,), 2))],
            "another net": [*members, altmin.methods.create(name, altmin.models.mlp(3, (4,), 2))],
        }
        how = r.choice(sorted(spoilt))
        members = spoilt[how]  # type: ignore[assignment]
    judge.drawn.append(f"an Ensemble of {len(models)} {name}, {how}")
    ensemble = judge.call("Ensemble", lambda: altmin.Ensemble(members))
    if ensemble is REFUSED:
        return

    def held() -> Any:
        state = ensemble.state_dict()
        return ensemble.model, state["members"]  # who takes part may change when all have diverged

    for _ in range(r.randint(1, 4)):
        x, y, said, _ = draw_batch(r, drawn, True, wrong)
        each = r.choice((None, None, False, True))
        if each and isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            x, y = torch.stack([x] * len(models)), torch.stack([y] * len(models))
        judge.drawn.append(f"a step of all with {said}, each={each}")
        judge.call("Ensemble.step", lambda x=x, y=y, each=each: ensemble.step(x, y, each), held, (x, y))
    if r.random() < 0.5:
        judge.drawn.append("a round trip of the ensemble's state")
        state = copy.deepcopy(ensemble.state_dict())
        if r.random() < wrong:
            judge.drawn[-1] += f" without or with other {_spoil(r, state)}"
        judge.call("Ensemble.load_state_dict", lambda: ensemble.load_state_dict(state), held)


def _compare(r: Random, judge: CaseJudge, drawn: Drawn) -> None:
    """One step without moving codes is a step of gradient descent with backprop's gradients."""
    assert drawn.model is not None
    with torch.no_grad():
        if not all_finite(drawn.model) or any(p.abs().max() > 100 for p in drawn.model.parameters() if p.numel()):
            return
    model = copy.deepcopy(drawn.model).double()
    twin, labels = copy.deepcopy(model), r.random() < 0.5
    alike = Drawn(model, drawn.shape, drawn.outputs, torch.float64, integers=drawn.integers)
    x, y = good_batch(r, alike, labels, r.choice((2, 3, 5)))
    loss = F.cross_entropy if labels and r.random() < 0.3 else nn.CrossEntropyLoss() if labels else nn.MSELoss()
    codes = altmin.RecurrentCodes("sequential", share=0.0) if drawn.recurrent else altmin.GradientCodes(share=0.0)
    judge.drawn.append(f"a step with share 0 on x {tuple(x.shape)}, {'labels' if labels else 'numbers'}")
    rate = 0.5
    am = judge.call("AltMin", lambda: altmin.AltMin(model, loss, codes, altmin.LocalSGD(rate, momentum=0.0)))
    if am is REFUSED or judge.call("step", lambda: am.step(x, y), _held(am)) is REFUSED:
        return
    loss(twin(x), y).backward()
    pairs = [(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True) if q.requires_grad]
    largest = max([float(q.grad.abs().max()) for _, q in pairs if q.grad is not None and q.numel()], default=0.0)
    for p, q in pairs:
        step = (q - p).detach() / rate
        wanted = torch.zeros_like(q) if q.grad is None else q.grad
        if not torch.allclose(step, wanted, rtol=1e-6, atol=1e-9 * max(1.0, largest)):
            judge.fail("step", f"departs from backprop by {float((step - wanted).abs().max()):.3g} of {largest:.3g}")
            break
    judge.compared += 1
