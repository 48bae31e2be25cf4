"""A weight rule, a code solver and a loss, as docs/extend.md shows them, run in every runner with the numbers of one
process."""

import re
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import altmin
from altmin.methods import protocol
from altmin.methods.alternating import Offline
from altmin.runners import Recorded
from altmin.runners.layer_parallel import LayerParallel
from altmin.training import checkpoint, fit

F64 = torch.float64
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def parts() -> dict[str, Any]:
    """What the Python of docs/extend.md defines, executed as it is."""
    text = (Path(__file__).parent.parent / "docs/extend.md").read_text()
    found: dict[str, Any] = {"__name__": "extend"}
    kept = dict(altmin.calculus.CLOSED_FORMS), dict(protocol._FACTORIES)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            exec(block, found)
    for table, before in zip((altmin.calculus.CLOSED_FORMS, protocol._FACTORIES), kept, strict=True):
        table.clear()
        table.update(before)
    return found


PARTS = parts()
CASES = {
    "rule": {"weights": lambda: PARTS["SignDescent"](2**-7, beta=0.75)},
    "memory": {"weights": lambda: altmin.CoActivationMemory(0.02, rank=5, weight_decay=0.1, decay_biases=False)},
    "solver": {"codes": lambda: PARTS["Careful"]()},
    "solver with state": {
        "weights": lambda: PARTS["SignDescent"](2**-7),
        "codes": lambda: PARTS["TrustRegion"](0.25),
    },
    "loss": {"loss": lambda: PARTS["LogCosh"]()},
    "all": {
        "weights": lambda: PARTS["SignDescent"](2**-7),
        "codes": lambda: PARTS["Careful"](),
        "loss": lambda: PARTS["LogCosh"](),
    },
}
EVERY = pytest.mark.parametrize("case", CASES)


def trainer(case: str, seed: int = 0) -> altmin.AltMin:
    torch.manual_seed(seed)
    options = {name: make() for name, make in CASES[case].items()}
    return altmin.AltMin(altmin.models.mlp(4, (7, 6), 3, nn.Tanh).double(), **{"loss": nn.MSELoss(), **options})


def batches(count: int = 4, samples: int = 8) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, samples, 4, dtype=F64, generator=generator)
    return list(zip(x, x[..., :3].sin(), strict=True))


def state(method: Any) -> dict[str, Tensor]:
    """Weights and everything that the next step depends on, by their places; but for the root P of a memory's K, which
    magnifies rounding."""
    held = pytree.tree_flatten_with_path((dict(method.model.state_dict()), method.state_dict()))[0]
    return {
        pytree.keystr(path): torch.as_tensor(t, dtype=F64).detach().clone()
        for path, t in held
        if isinstance(t, Tensor | float) and not pytree.keystr(path).endswith("['P']")
    }


def same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, **EXACT)


def train(method: Any, data: list[tuple[Tensor, Tensor]]) -> Any:
    for x, y in data:
        method.step(x, y)
    return method


def test_the_rule_is_what_its_docstring_says() -> None:
    """Against the formula by hand, on one block, whose gradient is that of the loss."""
    model = nn.Linear(4, 3).double()
    am = altmin.AltMin(nn.Sequential(model), loss=nn.MSELoss(), weights=PARTS["SignDescent"](0.25, beta=0.5))
    W, m = model.weight.detach().clone(), torch.zeros(3, 4, dtype=F64)
    b, n = model.bias.detach().clone(), torch.zeros(3, dtype=F64)
    for x, y in batches():
        r = 2 * (x @ W.mT + b - y) / y.numel()
        m, n = 0.5 * m + 0.5 * r.mT @ x, 0.5 * n + 0.5 * r.sum(0)
        W, b = W - 0.25 * m.sign(), b - 0.25 * n.sign()
        am.step(x, y)
    same([model.weight, model.bias], [W, b])


class InPlace(altmin.WeightRule):
    """Momentum that writes into its state, or into the parameters."""

    lr = 0.1

    def __init__(self, where: str):
        self.where = where

    def init(self, block: Any, parameters: Any) -> Any:
        return [torch.zeros_like(p) for p in parameters]

    def update(self, parameters: Any, state: Any, contribution: Any, rates: Any) -> Any:
        if self.where == "state":
            state = [m.mul_(0.9).add_(g) for m, g in zip(state, contribution, strict=True)]
        moves = [-self.lr * g for g in contribution]
        if self.where == "parameters":
            for p, move in zip(parameters, moves, strict=True):
                p.add_(move)
        return moves, state


RUNNERS = {
    "alone": lambda am: am,
    "compiled": lambda am: altmin.AltMin(am.model, weights=am.weights, compile=True),
    "recorded": lambda am: Recorded(am, fuse=False),
    "ensemble": lambda am: altmin.Ensemble([am]),
    "layer-parallel": LayerParallel,
}


@pytest.mark.parametrize("where", ["state", "parameters"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_rule_that_writes_in_place_is_refused(runner: str, where: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    method = RUNNERS[runner](altmin.AltMin(model, weights=InPlace(where)))
    x, y = labelled()[0]
    with pytest.raises(ValueError, match="InPlace"):
        method.step(x, y)


def test_the_check_of_a_rule_changes_nothing() -> None:
    """Not even the masks of dropout."""
    trained = []
    for check in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3), nn.Linear(3, 3)).double()
        am = altmin.AltMin(model, weights=PARTS["SignDescent"](2**-7), check=check)
        am.step(*labelled()[0])
        trained.append(state(am))
    same(*trained)


def test_the_state_of_the_solver_is_what_its_docstring_says() -> None:
    """Two steps in which all codes move, one in which none does, as the loss is at its minimum, and one that fails."""
    am, (x, y) = trainer("solver with state"), batches()[0]
    for target in (y, y, None):
        am.step(x, am.model(x).detach() if target is None else target)
    with pytest.raises(ValueError, match="NaN"):
        am.step(x * torch.nan, y)
    moved = torch.tensor(0.25 * 1.1**2 / 2, dtype=F64)
    same(am.state_dict()["codes"], {0: torch.tensor(0.25, dtype=F64), 1: moved, 2: moved})


def test_a_state_of_the_solver_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    am = train(trainer("solver with state"), batches())
    before, codes = state(am), am.state_dict()["codes"]
    for wrong in ({**codes, 1: torch.ones(2)}, {**codes, 9: codes[2]}, []):
        with pytest.raises(ValueError):
            am.load_state_dict({**trainer("solver with state").state_dict(), "codes": wrong})
        assert all(map(torch.equal, state(am).values(), before.values()))
    with pytest.raises(ValueError, match="codes"):
        trainer("rule").load_state_dict(am.state_dict())


@EVERY
def test_in_an_ensemble(case: str) -> None:
    alone, ensemble = [trainer(case, seed) for seed in (0, 1)], altmin.Ensemble([trainer(case, s) for s in (0, 1)])
    train(ensemble, batches())
    for own, method in zip(alone, ensemble.methods, strict=True):
        same(state(method), state(train(own, batches())))


def test_members_of_an_ensemble_have_numbers_of_their_own() -> None:
    """A rate that a schedule moves."""

    def make() -> list[altmin.AltMin]:
        rules = [PARTS["SignDescent"](2**-7), PARTS["SignDescent"](2**-5)]
        torch.manual_seed(0)
        return [altmin.AltMin(altmin.models.mlp(4, (7, 6), 3).double(), nn.MSELoss(), weights=rule) for rule in rules]

    alone, ensemble = make(), altmin.Ensemble(make())
    for x, y in batches():
        ensemble.step(x, y)
        for group in ensemble.optimizer.param_groups:
            group["lr"].mul_(0.5)
        for own in alone:
            own.step(x, y)
            own.optimizer.param_groups[0]["lr"] *= 0.5
    for own, method in zip(alone, ensemble.methods, strict=True):
        same(state(method), state(own))


@pytest.mark.parametrize("case", CASES)
def test_as_a_recorded_step_with_a_schedule(case: str) -> None:
    one, recorded = trainer(case), Recorded(trainer(case), fuse=False)
    for x, y in batches():
        for method in (one, recorded):
            method.step(x, y)
            method.optimizer.param_groups[0]["lr"] *= 0.5
    torch.testing.assert_close(state(recorded), state(one), rtol=1e-8, atol=1e-8)  # an optimizer's rates are float32


def method() -> Any:
    torch.manual_seed(0)
    return PARTS["Normalised"](altmin.models.mlp(4, (7, 6), 3, nn.Tanh).double(), lr=0.1)


def labelled() -> list[tuple[Tensor, Tensor]]:
    return [(x, y.argmax(1)) for x, y in batches()]


def spread(rank: int) -> dict[str, dict[str, Tensor]]:
    """What 2 ranks make of every case: the samples of each batch divided, or the blocks; an epoch as one batch."""
    found = {}
    for case in CASES:
        found[f"{case}, samples"] = state(train(altmin.Distributed(trainer(case)), batches()))
        run = train(LayerParallel(trainer(case), micro_batches=2), batches())
        run.synchronize()
        found[f"{case}, blocks"] = state(run)
        run = train(altmin.Distributed(Offline(trainer(case))), batches())
        run.end_epoch()
        found[f"{case}, offline"] = state(run)
    found["method"] = state(train(altmin.Distributed(method()), labelled()))
    return found


@pytest.fixture(scope="module")
def of_ranks() -> list[dict[str, dict[str, Tensor]]]:
    return ranks.run(2, spread)


@EVERY
def test_with_samples_over_ranks(case: str, of_ranks: Any) -> None:
    for found in of_ranks:
        same(found[f"{case}, samples"], state(train(trainer(case), batches())))


def test_a_method_with_samples_over_ranks(of_ranks: Any) -> None:
    for found in of_ranks:
        same(found["method"], state(train(method(), labelled())))


@EVERY
def test_with_blocks_over_ranks(case: str, of_ranks: Any) -> None:
    """A step is that of the parts of a mini-batch, gathered."""
    one = trainer(case)
    for x, y in batches():
        for rows in (slice(0, 4), slice(4, 8)):
            one.gather(x[rows], y[rows])
        one.apply()
    for found in of_ranks:
        same(found[f"{case}, blocks"], state(one))


@EVERY
def test_offline(case: str, of_ranks: Any) -> None:
    """One step of a whole epoch, by parts of the data."""
    one, offline = trainer(case), Offline(trainer(case))
    for x, y in batches():
        one.gather(x, y)
        offline.step(x, y)
    one.apply()
    one.end_epoch()
    offline.end_epoch()
    same(state(offline), state(one))
    for found in of_ranks:
        same(found[f"{case}, offline"], state(one))


@EVERY
def test_saved_and_loaded(case: str, tmp_path: Path) -> None:
    whole, first, second = (trainer(case) for _ in range(3))
    train(whole, batches())
    train(first, batches()[:2])
    checkpoint.save(tmp_path / "kept", {"model": first.model.state_dict(), "method": first.state_dict()})
    kept = checkpoint.load(tmp_path / "kept")
    second.model.load_state_dict(kept["model"])
    second.load_state_dict(kept["method"])
    same(state(train(second, batches()[2:])), state(whole))


@pytest.mark.filterwarnings("error")
def test_the_rate_follows_a_schedule_of_torchs() -> None:
    """In `fit`, as by hand."""
    x, y = (torch.cat(t) for t in zip(*batches(), strict=True))
    am, by_hand = trainer("rule"), trainer("rule")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(am.optimizer, 0.5)
    fit(am, (x, y), epochs=3, batch_size=len(x), scheduler=scheduler)
    for _ in range(3):
        by_hand.step(x, y)
        by_hand.optimizer.param_groups[0]["lr"] *= 0.5
        by_hand.end_epoch()
    same([*am.model.parameters()], [*by_hand.model.parameters()])
