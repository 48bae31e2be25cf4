"""Settings of all tests: one thread, reproducible property tests, CUDA tests skipped where there is no CUDA.

And the one place where tests look into the residuals that the code update leaves.
"""

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # read once, by scipy; one of scikit-learn's checks runs only with it

# isort: split
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor, nn

import altmin
from altmin.core.codes.above import Residual
from altmin.core.codes.gradient import encode, top_down
from altmin.core.losses import adapt
from altmin.core.step import move_codes

# Tensors here are tiny: a second thread gains nothing, and on a busy machine waiting for it costs twenty times as much.
torch.set_num_threads(1)

settings.register_profile(
    "altmin", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("altmin")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


def residuals_of(model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float, loss: Any = None) -> list[Residual]:
    """Every block's residual, first to last, from the package."""
    chain = altmin.split(model)
    with torch.no_grad():
        adapted = adapt(loss or nn.CrossEntropyLoss())
        return move_codes(chain, chain.parameters(), codes, adapted, x, y, mu, lambda l, residual: residual).found


class Watched:
    """A code solver, and the offset from its encoded value that each code gets, first to last."""

    def __init__(self, codes: Any):
        self.codes, self.order = codes, codes.order
        self.offsets: list[Tensor] = []

    def __call__(self, chain: Any, theta: Any, trace: Any, top: Any) -> Any:
        return top_down(self, chain, theta, trace, top)

    def move(self, *given: Any) -> Any:
        residual, ask = self.codes.move(*given)
        self.offsets.insert(0, -ask.scale * ask.position)
        return residual, ask


def update_codes(
    model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float, loss: Any = None
) -> tuple[list[Tensor], list[Tensor], list[Residual]]:
    """The encoded codes and the output, the moved codes, and every block's residual, from the package."""
    chain, watched = altmin.split(model), Watched(codes)
    with torch.no_grad():
        encoded = encode(chain, chain.parameters(), x).values
    residuals = residuals_of(model, watched, x, y, mu, loss)
    return encoded, [c + d for c, d in zip(encoded, watched.offsets, strict=False)], residuals


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
    monkeypatch.setattr("altmin.runners.capture.fusing_now", lambda: True)
