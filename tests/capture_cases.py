"""Nets, rules and batches for tests of captured steps, and what stands in for a CUDA graph where there is none."""

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import altmin
from altmin.calculus.context import LOCAL
from altmin.runners import programs
from altmin.runners.capture import AltMinStep, captured

F64 = torch.float64


class Rerun(programs.Program):
    """Runs the action again where a CUDA graph would replay it; as there, each result overwrites the last."""

    def __init__(self, action: Callable[[], Tensor], state: Callable[[], list[Tensor]]):
        self.action = action
        with programs._restored(state):
            self.result = action().clone()

    def replay(self) -> Tensor:
        return self.result.copy_(self.action())


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are run again instead of replayed, on whatever device the model is."""
    for name in ("Program", "Call"):
        monkeypatch.setattr(programs, name, Rerun)
    monkeypatch.setattr("altmin.runners.recorded.demand_recordable", lambda method, fuse: None)
    monkeypatch.setattr("altmin.runners.recorded.can_fuse", lambda device: False)


def mlp(*widths: int, activation: Any = nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for m, n in itertools.pairwise((7, *widths)):
        layers += [nn.Linear(m, n, bias=bias), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 3)).double()


def unequal() -> nn.Sequential:
    """Two runs of equal blocks with something else between: blocks 1 to 3 and 5 to 6."""
    return mlp(9, 9, 9, 9, 5, 5, 5)


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "one layer": lambda: mlp(6),
    "two layers": lambda: mlp(6, 6),
    "a run": lambda: mlp(8, 8, 8, 8, 8),
    "two runs": unequal,
    "no biases": lambda: mlp(8, 8, 8, 8, bias=False),
    "40 layers": lambda: mlp(*[8] * 40),
    "tanh": lambda: mlp(6, 6, 6, activation=nn.Tanh),
    "rectified inputs": lambda: nn.Sequential(
        *(m for _ in range(4) for m in (nn.ReLU(), nn.Linear(7, 7))), nn.ReLU(), nn.Linear(7, 3)
    ).double(),
    "mixed": lambda: nn.Sequential(*mlp(8, 8, 8)[:-1], nn.Linear(8, 8), nn.Tanh(), *mlp(8, 8, 8)[2:]).double(),
}
# rates that float32, in which they lie on a device, holds exactly
RULES: dict[str, Callable[[], Any]] = {
    "adam": lambda: altmin.LocalAdam(2**-7, weight_decay=0.1),
    "adamw": lambda: altmin.LocalAdam(2**-7, weight_decay=0.1, decoupled_weight_decay=True),
    "sgd": lambda: altmin.LocalSGD(2**-4, momentum=0.9, weight_decay=0.01),
    "sgd, plain": lambda: altmin.LocalSGD(2**-4, momentum=0.0),
    "several steps, l1 and clipping": lambda: altmin.LocalAdam(2**-7, steps=3, l1=2**-6, clip_norm=0.1),
    "memory": lambda: altmin.FittedMemory(0.5, rate=1.0, rest=altmin.LocalAdam(2**-7)),
    "memory, two steps, of codes": lambda: altmin.FittedMemory(
        0.9, 2.0, rate=None, rest=altmin.LocalSGD(2**-4), steps=2
    ),
    "solved memory": lambda: altmin.CoActivationMemory(2**-7, rank=5, weight_decay=0.1),
    "memory, sweeps": lambda: altmin.FittedMemory(1.0, sweeps=1, rate=1.0, rest=altmin.LocalAdam(2**-7, steps=2)),
}


def pair(model: nn.Module, rule: Callable[[], Any], **options: Any) -> tuple[altmin.AltMin, altmin.AltMin]:
    """Two methods that are alike."""
    own = [copy.deepcopy(options) for _ in range(2)]
    a, b = (altmin.AltMin(copy.deepcopy(model), weights=rule(), **each) for each in own)
    return a, b


def batches(count: int, features: tuple[int, ...] = (7,), size: int = 12, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(size, *features, dtype=F64, generator=generator)
        yield x, torch.randint(3, (size,), generator=generator)


def same(a: nn.Module, b: nn.Module, within: float = 1e-9) -> None:
    """All parameters and buffers."""
    for p, q in zip((*a.parameters(), *a.buffers()), (*b.parameters(), *b.buffers()), strict=True):
        torch.testing.assert_close(p, q, rtol=within, atol=within)


def steps(data: Iterable[tuple[Any, Any]], *takers: Callable[[Any, Any], Any]) -> None:
    """Hands every mini-batch to each of them."""
    for x, y in data:
        for take in takers:
            take(x, y)


def following(step: Any) -> Callable[[Any, Any], Tensor]:
    """Takes captured steps, each of the kind that is next."""
    return lambda x, y: step.run(x, y, step.begin_step())


def tensors(am: altmin.AltMin) -> list[Tensor]:
    """Those of a weight rule's state: moments, counts, memories."""
    return [t for t in pytree.tree_leaves(am.state_dict()["weights"]) if isinstance(t, Tensor)]


def both(
    net: nn.Module, rule: Any = "adam", data: Any = None, within: float = 1e-9, fuse: bool = False, **options: Any
) -> tuple[altmin.AltMin, AltMinStep]:
    """Takes ordinary steps of one method and captured ones of another like it: they must go the same way."""
    ordinary, other = pair(net, RULES[rule] if isinstance(rule, str) else rule, **options)
    step: Any = captured(other, fuse, LOCAL)
    for x, y in data or batches(4):
        expected = ordinary.step(x, y).loss
        torch.testing.assert_close(step.metrics(following(step)(x, y)).loss, expected, rtol=within, atol=within)
    assert step.pull() is None
    same(ordinary.model, other.model, within)
    torch.testing.assert_close(tensors(other), tensors(ordinary), rtol=10 * within, atol=within, check_device=False)
    return ordinary, step
