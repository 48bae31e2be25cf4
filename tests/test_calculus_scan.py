"""Scans and sweeps are their recurrences, step by step; kernels on a GPU are those of the CPU."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from altmin.calculus.sweep import sweep
from altmin.common.scan import differentiable_scan, in_rounds, one_by_one, scan

F64 = torch.float64
FORMS = {"elman": (1, False, False), "gru": (3, True, False), "lstm": (4, True, True)}
"""Codes of a unit, whether the state enters the next one by itself, and whether there is a cell."""


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def problem(form: str, steps: int, samples: int, d: int, seed: int) -> list[Tensor | None]:
    codes, keeps, cell = FORMS[form]
    e, F, W = (
        draw(seed, steps, samples, d),
        draw(seed + 1, steps, samples, codes, d).tanh(),
        draw(seed + 2, codes * d, d),
    )
    k = draw(seed + 3, steps, samples, d).sigmoid() if keeps else None
    return [e, F, W / (codes * d**0.5), k, draw(seed + 4, steps, samples, d).tanh() if cell else None]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_a_sweep_is_its_recurrence_for_each_sample(form: str, steps: int, samples: int, d: int, seed: int) -> None:
    e, F, W, k, c = problem(form, steps, samples, d, seed)
    assert isinstance(e, Tensor)
    assert isinstance(F, Tensor)
    assert isinstance(W, Tensor)
    found, of_cell = sweep(e, F, W, k, c)
    blocks = W.view(-1, d, d)
    for i in range(samples):
        D, A = torch.zeros(d, dtype=F64), torch.zeros(d, dtype=F64)
        for t in reversed(range(steps)):
            new = e[t, i].clone()
            if t + 1 < steps:
                for j, block in enumerate(blocks):
                    from_cell = c is not None and j < len(blocks) - 1
                    new += block.T @ (F[t + 1, i, j] * (A if from_cell else D))
                if k is not None and c is None:
                    new += k[t + 1, i] * D
            if c is not None:
                assert k is not None
                A = c[t, i] * new + (k[t + 1, i] * A if t + 1 < steps else 0)
            D = new
            torch.testing.assert_close(found[t, i], D)
            torch.testing.assert_close(of_cell[t, i], D if c is None else A)


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [1, 2, 40])
@pytest.mark.parametrize(("samples", "d"), [(1, 1), (5, 15), (33, 50), (200, 64), (17, 100)])
def test_the_kernel_of_a_sweep_is_the_one_of_the_cpu(form: str, steps: int, samples: int, d: int) -> None:
    parts = problem(form, steps, samples, d, 0)
    on_gpu = [None if t is None else t.float().cuda() for t in parts]
    for mine, theirs in zip(sweep(*on_gpu), sweep(*parts), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(mine.cpu().double(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.cuda
def test_the_kernel_of_a_sweep_can_be_mapped_over_members() -> None:
    members = [problem("lstm", 9, 3, 4, seed) for seed in (0, 10)]
    stacked = [torch.stack([each[i] for each in members]).float().cuda() for i in range(5)]  # type: ignore[misc]
    together = torch.func.vmap(sweep)(*stacked)
    for m, member in enumerate(members):
        for mine, theirs in zip(together, sweep(*member), strict=True):  # type: ignore[arg-type]
            torch.testing.assert_close(mine[m].cpu().double(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [scan, differentiable_scan, one_by_one, in_rounds])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_diagonal_scan_is_its_recurrence(steps: int, function, reverse: bool) -> None:
    a, b = draw(steps, 2, steps, 3).tanh(), draw(steps + 1, 2, steps, 3)
    found, h = function(a, b, 1, reverse), torch.zeros(2, 3, dtype=F64)
    for t in reversed(range(steps)) if reverse else range(steps):
        h = a[:, t] * h + b[:, t]
        torch.testing.assert_close(found[:, t], h)
    first = function(a.transpose(0, 1), b.transpose(0, 1), 0, reverse)
    torch.testing.assert_close(first, found.transpose(0, 1))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 31, 32, 33, 784])
def test_the_kernel_of_a_scan_and_its_gradients_are_those_of_the_cpu(steps: int, reverse: bool, dtype) -> None:
    for shape, dim in (((3, steps, 70), 1), ((steps, 3, 5), 0)):
        a, b, v = draw(0, *shape).tanh(), draw(1, *shape), draw(2, *shape)
        a.requires_grad_(), b.requires_grad_()
        expected = one_by_one(a, b, dim, reverse)
        gradients = torch.autograd.grad(expected, (a, b), v, materialize_grads=True)
        x, y = (t.detach().to("cuda", dtype).requires_grad_() for t in (a, b))
        found = differentiable_scan(x, y, dim, reverse)
        tight = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
        for mine, theirs in zip(
            (scan(x.detach(), y.detach(), dim, reverse), found, *torch.autograd.grad(found, (x, y), v.to(x))),
            (expected, expected, *gradients),
            strict=True,
        ):
            torch.testing.assert_close(mine.cpu().double(), theirs, **tight)


@pytest.mark.cuda
def test_the_kernel_of_a_scan_under_functorch_and_compiled() -> None:
    a, b = draw(0, 2, 40, 3).tanh().cuda(), draw(1, 2, 40, 3).cuda()
    expected = in_rounds(a, b, 1)
    torch.testing.assert_close(torch.func.vmap(lambda a, b: scan(a, b, 0))(a, b), expected)
    torch.testing.assert_close(torch.compile(scan, fullgraph=True)(a, b), expected)
    ways = [
        lambda f: torch.func.vjp(f, a, b)[1](b),
        lambda f: torch.func.jvp(f, (a, b), (b, a))[1],
        lambda f: torch.func.jvp(lambda a: f(a, b), (a,), (b,))[1],
    ]
    for way in ways:
        torch.testing.assert_close(way(differentiable_scan), way(lambda a, b: in_rounds(a, b, 1)))
        compiled = torch.compile(lambda way=way: way(differentiable_scan), fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(), way(differentiable_scan))


def test_scans_can_be_mapped_over_members() -> None:
    members = [problem("gru", 9, 3, 4, seed) for seed in (0, 10)]
    stacked = [torch.stack([each[i] for each in members]) for i in range(4)]  # type: ignore[misc]
    together, _ = torch.func.vmap(sweep)(*stacked)
    torch.testing.assert_close(together, torch.stack([sweep(*each)[0] for each in members]))  # type: ignore[arg-type]
