"""Networks that are written at random, by a generator that knows nothing of how a model is traced: one step, or two on
different batches, is backprop's, or is refused in one clear sentence and leaves everything as it was.

`share` is 0 and the learning rate 1, so that the weights move by the gradient. What autograd makes of the
same source is compared: the loss, every parameter, every buffer, the numbers that modules keep, the output afterwards.

Case number i of a run with seed s is case 0 of a run with seed s + i, so that `python -m tests.fuzz networks --seed S
--cases 1` repeats it. A case takes about 0.06 s.
"""

import contextlib
import linecache
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import altmin

from .judge import REFUSED, Judge, all_finite
from .networks_drawn import Network, draw


def fuzz(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Counts the steps compared with backprop's, the networks refused, and those that were then trained as the refusal
    says, as one block."""
    counters = {"steps as backprop's": 0, "networks refused": 0, "trained as one block after a refusal": 0}
    for number in range(seed, seed + count):
        judge = case(number, failures)
        counters["steps as backprop's"] += judge.compared
        counters["networks refused"] += judge.refused > 0
        counters["trained as one block after a refusal"] += judge.refused == 1 and judge.compared > 1
    return counters


@dataclass
class Made:
    """What a source defines, executed."""

    model: nn.Module
    loss: Any
    batches: list[tuple[Tensor, Tensor]]
    between: Callable[[], None]
    beside: list[Tensor]

    def parameters(self) -> dict[str, Tensor]:
        """Those of the model, of the loss, and those beside them."""
        named = [*self.model.named_parameters(), *((f"beside {i}", p) for i, p in enumerate(self.beside))]
        if isinstance(self.loss, nn.Module):
            named += [(f"loss.{name}", p) for name, p in self.loss.named_parameters()]
        return dict(named)

    def state(self) -> dict[str, Any]:
        """Buffers, and numbers that modules keep."""
        modules = dict(self.model.named_modules()) | ({"loss": self.loss} if isinstance(self.loss, nn.Module) else {})
        kept = {
            f"{at}.{name}": value
            for at, module in modules.items()
            for name, value in (*module.named_buffers(recurse=False), *vars(module).items())
            if isinstance(value, Tensor | int | float | list) and not name.startswith("_")
        }
        return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in kept.items()}


@dataclass(frozen=True)
class Found:
    """A step: its loss, the parameters and the state after it, and then the output for the same batch. largest: entry
    of a gradient, of autograd alone. drew: whether random numbers were drawn."""

    loss: float
    parameters: dict[str, Tensor]
    state: dict[str, Any]
    output: Tensor
    drew: bool
    largest: float = 0.0


def case(seed: int, failures: list[str]) -> Judge:
    """One network that autograd can train: others are drawn again."""
    r = Random(seed)
    with torch.random.fork_rng(devices=()), torch.enable_grad():  # what a forward sets is undone
        for _ in range(100):
            network = draw(r)
            try:
                wanted = by_autograd(network, seed)
            except Exception:  # autograd refuses what was drawn, such as a value changed that backward needs
                continue
            if all(map(tame, wanted)):
                drawn = [" / ".join(network.used), "\n" + network.source]
                judge = Judge(f"networks --seed {seed}", failures, drawn)
                compare(network, seed, wanted, judge)
                return judge
    raise AssertionError(f"none of 100 networks drawn with seed {seed} can be trained by autograd")


def tame(found: Found) -> bool:
    """Numbers can be compared: they are finite and of moderate size."""
    return all_finite([found.output, found.state, found.loss]) and abs(found.loss) < 1e4 and 0 < found.largest < 1e3


@contextlib.contextmanager
def made(network: Network, seed: int) -> Iterator[Made]:
    """Executes the source; twice with one seed gives two models that are equal. Global hooks are removed at the end."""
    torch.manual_seed(seed)
    file = f"<network {seed}>"
    linecache.cache[file] = len(network.source), None, network.source.splitlines(True), file  # for fx and tracebacks
    names: dict[str, Any] = {"fill": fill, "handles": [], "beside": [], "__name__": "network"}
    try:
        exec(compile(network.source, file, "exec"), names)
        batches = []
        for samples, names["length"] in network.batches:
            batches.append((names["inputs"](samples), names["targets"](samples)))
        yield Made(names["model"], names["loss"], batches, names["between"], names["beside"])
    finally:
        for handle in names["handles"]:
            handle.remove()


def fill(model: nn.Module) -> None:
    """Moves all parameters from where they begin, such as zeros and ones, in float64."""
    model.double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))


def by_autograd(network: Network, seed: int) -> list[Found]:
    """The steps of gradient descent at learning rate 1."""
    with made(network, seed) as m:
        steps = []
        for number, (x, y) in enumerate(m.batches):
            if number:
                m.between()
            given, random, parameters = x.clone(), torch.get_rng_state(), m.parameters()
            for p in parameters.values():
                p.grad = None
            value = m.loss(m.model(x), y)
            value.backward()
            grads = {name: p.grad for name, p in parameters.items() if p.grad is not None}
            with torch.no_grad():
                for name, g in grads.items():
                    parameters[name].sub_(g)
            largest = max(float(g.abs().max()) for g in grads.values())
            steps.append(found(m, float(value.detach()), given, random, largest))
        return steps


def found(m: Made, loss: float, x: Tensor, random: Tensor, largest: float = 0.0) -> Found:
    """What a step has led to. x: its input. random: the state of torch's generator before it."""
    parameters, state = {name: p.detach().clone() for name, p in m.parameters().items()}, m.state()
    drew = not torch.equal(random, torch.get_rng_state())
    with torch.no_grad():
        output = m.model(x.clone()).clone()
    return Found(loss, parameters, state, output, drew, largest)


def compare(network: Network, seed: int, wanted: list[Found], judge: Judge) -> None:
    """Trains the network by the library and says where it departs."""
    with made(network, seed) as m:
        am = judge.call("AltMin", lambda: _trainer(m.model, m.loss), lambda: held(m))
        if am is REFUSED and "nn.Sequential(model)" in judge.said:
            whole = nn.Sequential(m.model)
            am = judge.call("AltMin(nn.Sequential(model))", lambda: _trainer(whole, m.loss), lambda: held(m))
        for number, ((x, y), theirs) in enumerate(zip(m.batches, wanted, strict=True), 1):
            if am is REFUSED:
                return
            if number > 1:
                m.between()
            given, random = x.clone(), torch.get_rng_state()
            metrics = judge.call(f"step {number}", lambda x=x, y=y: am.step(x, y), lambda: held(m))
            if metrics is REFUSED:
                return
            faults = departures(found(m, float(metrics.loss), given, random), theirs)
            if faults:
                judge.fail(f"step {number}", f"departs from backprop's: {', '.join(faults)}")
                return
            judge.compared += 1


def _trainer(model: nn.Module, loss: Any) -> altmin.AltMin:
    codes, weights = altmin.GradientCodes(share=0.0), altmin.LocalSGD(1.0, momentum=0.0)
    return altmin.AltMin(model, loss=loss, codes=codes, weights=weights)


def held(m: Made) -> Any:
    """All that a refused call must leave as it was."""
    hooks = [len(h) for module in m.model.modules() for name, h in vars(module).items() if name.endswith("_hooks")]
    grads = [p.grad for p in m.parameters().values()]
    return (
        m.model,
        m.state(),
        list(m.parameters().values()),
        grads,
        hooks,
        torch.is_grad_enabled(),
        torch.get_rng_state(),
    )


def departures(ours: Found, theirs: Found) -> list[str]:
    """What of a step is not as autograd has it, in words."""
    faults = []
    if not math.isclose(ours.loss, theirs.loss, rel_tol=1e-6, abs_tol=1e-9):
        faults.append(f"loss {ours.loss:.6g} for {theirs.loss:.6g}")
    if ours.drew and not theirs.drew:
        faults.append("random numbers were drawn")
    if ours.parameters.keys() != theirs.parameters.keys():
        faults.append(f"parameters {[*ours.parameters]} for {[*theirs.parameters]}")
    for name, wanted in theirs.parameters.items():
        if name in ours.parameters and (off := distance(ours.parameters[name], wanted)) > 1e-5 * theirs.largest + 1e-7:
            faults.append(f"{name} off by {off:.3g} (largest gradient {theirs.largest:.3g})")
    for name, wanted in theirs.state.items():
        if name not in ours.state or (off := distance(ours.state[name], wanted)) > 1e-6:
            faults.append(f"{name} is {_shown(ours.state.get(name))} for {_shown(wanted)}")
    if not faults and (off := distance(ours.output, theirs.output)) > 1e-4 * (1 + float(theirs.output.abs().max())):
        faults.append(f"the output afterwards is off by {off:.3g}")
    return faults


def distance(a: Any, b: Any) -> float:
    """The largest difference between entries, relative where they are large."""
    if not isinstance(b, Tensor):
        a, b = (torch.as_tensor(each if isinstance(each, int | float) else 0.0) for each in (a, b))
    if not isinstance(a, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if not b.numel():
        return 0.0
    a, b = a.detach().double(), b.detach().double()
    return float(((a - b).abs() / b.abs().clamp(min=1)).max())


def _shown(value: Any) -> str:
    return " ".join(str(value).split())[:80]
