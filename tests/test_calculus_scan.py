"""Scans are their recurrences, step by step, whatever the chunks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from altmin.calculus.scan import backward_scan
from altmin.common.scan import in_rounds, one_by_one

F64 = torch.float64


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.none() | st.integers(1, 50), st.integers(0, 99))
def test_a_scan_in_chunks_is_the_sweep_from_the_last_step_to_the_first(
    steps: int, samples: int, d: int, chunk: int | None, seed: int
) -> None:
    p, s, W = draw(seed, steps, samples, d), draw(seed + 1, steps, samples, d).tanh(), draw(seed + 2, d, d)
    found = backward_scan(p, s, W, chunk)
    g = torch.zeros(samples, d, dtype=F64)
    for t in reversed(range(steps)):
        for i in range(samples):
            g[i] = s[t, i] * (p[t, i] + W.T @ g[i])
        torch.testing.assert_close(found[t], g, rtol=1e-9, atol=1e-9)


def test_it_has_the_gradients_of_backprop_through_time() -> None:
    """g_t is the derivative by the argument of tanh at step t of sum_t <p_t, h_t>."""
    T, n, d = 13, 3, 4
    x, W, p = draw(0, T, n, d), 0.5 * draw(1, d, d), draw(2, T, n, d)
    x.requires_grad_()
    h, states = torch.zeros(n, d, dtype=F64), []
    for t in range(T):
        h = torch.tanh(x[t] + h @ W.T)
        states.append(h)
    h = torch.stack(states)
    (h * p).sum().backward()
    found = backward_scan(p, (1 - h * h).detach(), W, chunk=4)
    torch.testing.assert_close(found, x.grad)


@pytest.mark.parametrize("function", [one_by_one, in_rounds])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 100])
def test_a_diagonal_scan_is_its_recurrence(steps: int, function) -> None:
    a, b = draw(steps, 2, steps, 3).tanh(), draw(steps + 1, 2, steps, 3)
    found, h = function(a, b, 1), torch.zeros(2, 3, dtype=F64)
    for t in range(steps):
        h = a[:, t] * h + b[:, t]
        torch.testing.assert_close(found[:, t], h)
    first = function(a.transpose(0, 1), b.transpose(0, 1), 0)
    torch.testing.assert_close(first, found.transpose(0, 1))


def test_scans_can_be_mapped_over_members() -> None:
    p, s, W = draw(0, 2, 9, 3, 4), draw(1, 2, 9, 3, 4).tanh(), draw(2, 2, 4, 4)
    together = torch.func.vmap(backward_scan)(p, s, W)
    torch.testing.assert_close(together, torch.stack([backward_scan(*each) for each in zip(p, s, W, strict=True)]))
