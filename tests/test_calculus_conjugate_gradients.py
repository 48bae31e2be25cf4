"""Conjugate gradients: each row a system, solved after as many steps as it has unknowns."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from altmin.calculus.conjugate_gradients import conjugate_gradients

F64 = torch.float64


@given(
    seed=st.integers(0, 10**6), unknowns=st.integers(1, 7), rows=st.integers(1, 4), ridge=st.sampled_from([0.0, 3.0])
)
def test_every_step_comes_nearer_and_the_last_is_there(seed: int, unknowns: int, rows: int, ridge: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(unknowns + 3, unknowns, generator=generator, dtype=F64)
    b = torch.randn(rows, unknowns, generator=generator, dtype=F64)
    M = a.T @ a + 0.1 * torch.eye(unknowns, dtype=F64)
    whole = M + ridge * torch.eye(unknowns, dtype=F64)
    exact = torch.linalg.solve(whole, b.T).T
    errors = [torch.einsum("ri,ij,rj->r", exact, whole, exact)]
    for steps in range(1, unknowns + 1):
        x, left = conjugate_gradients(lambda x: x @ M, b, steps, ridge)
        torch.testing.assert_close(left, b - x @ M, rtol=1e-8, atol=1e-8)
        errors.append(torch.einsum("ri,ij,rj->r", x - exact, whole, x - exact))
    assert all(bool((after <= before + 1e-9).all()) for before, after in itertools.pairwise(errors))
    torch.testing.assert_close(x, exact, rtol=1e-6, atol=1e-6)


def test_a_row_that_is_solved_and_a_matrix_of_zeros_give_no_number_that_is_none() -> None:
    M, b = torch.diag(torch.tensor([1.0, 2.0, 0.0])), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    x, left = conjugate_gradients(lambda x: x @ M, b, 5)
    torch.testing.assert_close(x, torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.5, 0.0]]))
    torch.testing.assert_close(left, torch.zeros(3, 3), atol=1e-6, rtol=0)
