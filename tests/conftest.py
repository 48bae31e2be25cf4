"""Settings of all tests: one thread, reproducible property tests, CUDA tests skipped where there is no CUDA.

And the one place where tests look into the local problems that the code update leaves.
"""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor, nn

import altmin
from altmin.codes.gradient import Local, encode
from altmin.codes.linesearch import FitAbove, LossAbove
from altmin.objective import adapt

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


def update_codes(
    model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float, loss: Any = None
) -> tuple[list[Tensor], list[Tensor], list[Local]]:
    """The encoded codes and the output, the moved codes, and every block's local problem, from the package."""
    chain = altmin.split(model)
    with torch.no_grad():
        theta = chain.parameters()
        trace = encode(chain, theta, x)
        encoded = [value.clone() for value in trace.values]  # the trace is used up
        top = LossAbove(adapt(loss or nn.CrossEntropyLoss()), trace.values[-1], y, mu)
        with patch.object(FitAbove, "served", lambda above: above):  # keep the offsets to look at
            problems = codes(chain, theta, trace, top, mu)
    # An offset is kept magnified by `scale`.
    offsets = [p.above.plain().start.force / p.above.scale for p in problems[:-1]]
    return encoded, [c + d for c, d in zip(encoded, offsets, strict=False)], problems


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


def residual(problem: Local) -> Tensor:
    """c - W a of a hidden block; minus the gradient of the summed loss of the output block."""
    return problem.plain().at.force / problem.above.scale


def term(problem: Local) -> Tensor:
    """The squared residual of each sample; its loss for the output block."""
    return problem.plain().at.values / problem.above.scale**2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Whatever a test or a command sets, the next test starts with one thread."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)
