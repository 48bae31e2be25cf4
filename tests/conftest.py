"""Settings of all tests: one thread, reproducible property tests, CUDA tests skipped where there is no CUDA.

And the one place where tests look into what the code update leaves.
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
from altmin.core.codes.problem import Encoded, Problem
from altmin.core.losses import adapt
from altmin.core.step import Outcome, move_codes

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

    problem: Problem
    cost: Any
    square: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)


def outcome_of(
    model: nn.Module, codes: Any, x: Any, y: Tensor, mu: Any, loss: Any = None, context: Context = LOCAL
) -> Outcome:
    """A mini-batch whose codes have moved, from the package; not in `LOCAL`, mu is a tensor."""
    chain, adapted = altmin.split(model), adapt(loss or nn.CrossEntropyLoss())
    mu = mu if context is LOCAL else torch.tensor(mu, dtype=torch.float64)
    with torch.no_grad():
        return move_codes(chain, chain.parameters(), codes, adapted, x, y, mu, context)


def residuals_of(
    model: nn.Module, codes: Any, x: Any, y: Tensor, mu: float, loss: Any = None, context: Context = LOCAL
) -> list[Residual]:
    """What every block is left with, first to last."""
    found = outcome_of(model, codes, x, y, mu, loss, context)
    return [Residual(*each) for each in zip(found.problems, found.costs, found.squares, strict=True)]


def gradients_of(model: nn.Module, codes: Any, x: Any, y: Tensor, mu: float, loss: Any = None) -> list[Tensor]:
    """The gradient of every block's parameters, in the order of the chain."""
    chain, problems = altmin.split(model), outcome_of(model, codes, x, y, mu, loss).problems
    with torch.no_grad():
        pairs = zip(problems, chain.parameters(), strict=True)
        return [g for problem, p in pairs for g in altmin.WeightRule().measure(problem.block, p, problem)]


def encoded_blocks(model: nn.Module, x: Tensor) -> tuple[list[Encoded], Tensor]:
    """The blocks at the inputs with which they are encoded, and the output."""
    chain, found = altmin.split(model), []
    with torch.no_grad():
        for block, p in zip(chain.blocks, chain.parameters(), strict=True):
            output, saved = block.forward(p, x, LOCAL)
            found.append(Encoded(block, p, x, saved, bool(found)))
            x = output
    return found, x


def update_codes(
    model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float, loss: Any = None
) -> tuple[list[Tensor], list[Tensor], list[Residual]]:
    """The encoded codes and the output, the moved codes, and what every block is left with."""
    blocks, output = encoded_blocks(model, x)
    encoded = [each.input for each in blocks[1:]]
    residuals = residuals_of(model, codes, x, y, mu, loss)
    moved = [c - r.scale * r.upstream for c, r in zip(encoded, residuals, strict=False)]
    return [*encoded, output], moved, residuals


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
