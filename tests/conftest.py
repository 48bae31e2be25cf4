"""Settings of all tests: one thread, reproducible property tests, CUDA tests skipped where there is no CUDA.

And the one place where tests look into the residuals that the code update leaves.
"""

import gc
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # read once, by scipy; one of scikit-learn's checks runs only with it

# isort: split
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor, nn

import altmin
from altmin.calculus.context import LOCAL, Context
from altmin.core.codes.links import LocalProblem, Moves, Segment, joined
from altmin.core.losses import adapt
from altmin.core.step import encode, move_codes

# Tensors here are tiny: a second thread gains nothing, and on a busy machine waiting for it costs twenty times as much.
torch.set_num_threads(1)

settings.register_profile(
    "altmin", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("altmin")

gc.disable()  # what is imported and collected stays: looking through it for garbage takes longer than collecting it


def pytest_collection_finish() -> None:
    gc.freeze()  # nor is it looked through by the tests, of which some collect garbage many times
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test registers are forgotten after it."""
    monkeypatch.setattr(altmin.methods.protocol, "_FACTORIES", dict(altmin.methods.protocol._FACTORIES))


class Residual(NamedTuple):
    """A block's problem, with its cost and the square of its code's move."""

    problem: LocalProblem
    cost: Any
    moved: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)


def residuals_of(
    model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float, loss: Any = None, context: Context = LOCAL
) -> list[Residual]:
    """What every block is left with, first to last, from the package."""
    chain = altmin.split(model)
    with torch.no_grad():
        adapted, price = adapt(loss or nn.CrossEntropyLoss()), next(model.parameters()).new_tensor(mu)
        moved = move_codes(chain, chain.parameters(), codes, adapted, x, y, price, context)
    return [Residual(*each) for each in zip(moved.problems, moved.costs, moved.moved, strict=True)]


def offsets_of(codes: Any, model: nn.Module, x: Tensor, y: Tensor, mu: float, loss: Any = None) -> list[Tensor]:
    """The offset of each code from its encoded value, first to last, when blocks are given to the solver one by one."""
    chain = altmin.split(model)
    found: list[Tensor] = []

    def watched(segment: Segment, above: Any) -> Moves:
        parts = []
        end = len(segment.blocks)
        while end:  # one block at a time, or two where codes in time belong to both
            first = end - 1
            part = codes(segment.part(first, end), above)
            if part.below is not None:
                above = part.below
                found.insert(0, -above.scale * above.offset)
            parts.append(part)
            end = first
        return joined(parts)

    with torch.no_grad():
        adapted, price = adapt(loss or nn.CrossEntropyLoss()), next(model.parameters()).new_tensor(mu)
        move_codes(chain, chain.parameters(), watched, adapted, x, y, price, LOCAL)
    return found


def update_codes(
    model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float, loss: Any = None
) -> tuple[list[Tensor], list[Tensor], list[Residual]]:
    """The encoded codes and the output, the moved codes, and what every block is left with, from the package."""
    chain = altmin.split(model)
    with torch.no_grad():
        encoded = encode(chain.blocks, chain.parameters(), x, LOCAL)[0][1:]
    offsets = offsets_of(codes, model, x, y, mu, loss)
    return (
        encoded,
        [c + d for c, d in zip(encoded, offsets, strict=False)],
        residuals_of(model, codes, x, y, mu, loss),
    )


def elman_problem(
    seed: int = 0, samples: int = 3, steps: int = 5, hidden: int = 4, inputs: int = 2, padded: bool = False
):
    """An Elman net with lively weights, and a batch."""
    torch.manual_seed(seed)
    model = altmin.models.elman(hidden, steps, inputs, 3, padded).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.8 if p.requires_grad else p)
    x = torch.randn(samples, steps, inputs, dtype=torch.float64)
    y = torch.randint(3, (samples,))
    if padded:
        lengths = torch.arange(samples) % steps + 1
        x = altmin.models.pad([s[:n] for s, n in zip(x, lengths.tolist(), strict=True)], steps)
    return model, x, y


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Whatever a test or a command sets, the next test starts with one thread."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture
def traced(monkeypatch):
    """Steps are traced as a whole, but not compiled, which takes long."""
    torch._dynamo.reset()  # what was traced for other nets counts towards a limit
    compiler = torch.compile
    monkeypatch.setattr("torch.compile", lambda function, **options: compiler(function, backend="eager", **options))
