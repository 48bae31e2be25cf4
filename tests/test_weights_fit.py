"""Fitting weights to a co-activation memory: sweeps, conjugate gradients and the exact solve."""

import itertools

import pytest
import reference
import torch
from coactivation_cases import F64, MU, batch, close, joined, mlp, moved_codes, pairs, problem, trainer
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import altmin
from altmin.core.weights.fitted_memory import descend, solve, sweep


def test_plain_memory_fits_least_squares_on_all_codes_seen():
    model = mlp()
    am = trainer(model, forget=1.0, damping=0.0, sweeps=None)
    seen: dict[int, list] = {0: [], 1: []}
    for i in range(4):
        x, y = batch(i, n=20)
        codes = moved_codes(model, x, y)
        for l in seen:
            seen[l] += pairs(model, codes, l)
        am.step(x, y)
        for l, all_pairs in seen.items():
            a, c = (torch.stack(part) for part in zip(*all_pairs, strict=True))
            wanted = torch.linalg.lstsq(a, c).solution.T
            residuals = [(c - a @ W.T).norm() for W in (joined(model[2 * l]), wanted)]
            assert residuals[0] <= residuals[1] * (1 + 1e-9)
            if torch.linalg.matrix_rank(a) == a.shape[1]:
                close(joined(model[2 * l]), wanted, 1e-7)


@given(seed=st.integers(0, 10**6), columns=st.integers(1, 7), rows=st.integers(1, 4))
def test_a_sweep_is_the_papers_loop_over_columns_and_never_raises_the_surrogate(seed, columns, rows):
    _, _, A, B, W = problem(seed, columns, rows)
    R = B - W @ A
    change = sweep(A, R)
    new = W + change.V
    close(change.left, R - change.V @ A)
    close(new, reference.coordinate_descent(W, A, B))
    assert reference.surrogate(new, A, B) <= reference.surrogate(W, A, B) + 1e-9


def test_many_sweeps_end_where_the_solve_does():
    a, c, A, B, W = problem(0)
    swept = W
    for _ in range(300):
        swept = swept + sweep(A, B - swept @ A).V
    exact = W + solve(A, B - W @ A, damping=0.0).V
    close(swept, exact, 1e-9)
    close(exact, torch.linalg.lstsq(a, c).solution.T, 1e-9)


@pytest.mark.parametrize("sweeps", [1, 3])
def test_training_with_sweeps_is_that_many_passes_over_the_columns(sweeps):
    model = mlp()
    x, y = batch(0)
    before, codes = [joined(model[0]), joined(model[2])], moved_codes(model, x, y)
    wanted = []
    for l in range(2):
        W, (A, B) = before[l], reference.memory(pairs(model, codes, l))
        for _ in range(sweeps):
            W = reference.coordinate_descent(W, A, B)
        wanted.append(W)
    trainer(model, sweeps=sweeps).step(x, y)
    close(joined(model[0]), wanted[0], 1e-9)
    close(joined(model[2]), wanted[1], 1e-9)


@pytest.mark.parametrize("damping", [0.01, 0.5, 10.0])
def test_damping_solves_the_problem_it_states(damping):
    """The gradient of Tr(V^T V A) - 2 Tr(V^T B) + lambda |V - W|^2 vanishes at V, by autograd."""
    _, _, A, B, W = problem(1)
    R = B - W @ A
    change = solve(A, R, damping)
    close(change.left, R - change.V @ A)
    V = (W + change.V).requires_grad_()
    weight = damping * A.diagonal().mean()
    value = reference.surrogate(V, A, B) + weight * (V - W).square().sum()
    (gradient,) = torch.autograd.grad(value, V)
    assert gradient.abs().max() < 1e-9
    assert (V - W).norm() < solve(A, R, 0.0).V.norm()


@given(seed=st.integers(0, 10**6), columns=st.integers(1, 7), rows=st.integers(1, 4), damping=st.floats(0.01, 30))
def test_conjugate_gradients_end_where_the_damped_solve_does_and_never_rise_on_the_way(seed, columns, rows, damping):
    _, _, A, B, W = problem(seed, columns, rows)
    R, ridge = B - W @ A, damping * A.diagonal().mean()

    def value(V):
        return reference.surrogate(V, A, R) + ridge * V.square().sum()

    changes = [descend(A, R, damping, steps) for steps in range(1, columns + 1)]
    values = [value(torch.zeros_like(W)), *(value(change.V) for change in changes)]
    assert all(b <= a + 1e-9 * (1 + abs(a)) for a, b in itertools.pairwise(values))
    close(changes[-1].V, solve(A, R, damping).V, 1e-6)
    for change in changes:
        close(change.left, R - change.V @ A, 1e-8)


def test_one_step_goes_along_the_gradient_as_far_as_is_best_for_each_row():
    _, _, A, B, W = problem(3)
    R, ridge = B - W @ A, 0.7 * A.diagonal().mean()
    V = descend(A, R, 0.7, 1).V
    for row, asked in zip(V, R, strict=True):
        lengths = torch.linspace(0, 0.2, 20001, dtype=F64)
        tried = lengths[:, None] * asked
        values = ((tried @ A) * tried).sum(1) - 2 * tried @ asked + ridge * tried.square().sum(1)
        close(row, tried[values.argmin()], 1e-4 * asked.abs().max())


def test_nothing_asked_is_nothing_changed():
    A, R = problem(0)[2], torch.zeros(3, 5, dtype=F64)
    for change in (descend(A, R, 0.0, 3), descend(torch.zeros_like(A), R, 1.0, 1), sweep(A, R), solve(A, R, 0.1)):
        assert torch.equal(change.V, R)
        assert torch.equal(change.left, R)


def test_what_codes_still_ask_is_told_by_all_codes_and_the_present_weights():
    """R is kept from step to step without B: over many steps it stays B - W A for the B of the sums."""
    for options in ({"steps": 1}, {"steps": 3}, {"steps": None}, {"sweeps": 1}):
        model = mlp()
        am = trainer(model, forget=0.8, **options)
        A, B = 0.0, 0.0
        for i in range(12):
            x, y = batch(i)
            a, b = reference.memory(pairs(model, moved_codes(model, x, y), 1))
            A, B = 0.8 * A + a, 0.8 * B + b
            am.step(x, y)
        close(am.weights.memories[1].A, A)
        close(am.weights.memories[1].B, B, 1e-9)
        close(am.updates.states[1]["R"], B - joined(model[2]) @ A, 1e-8)


def test_memory_does_not_care_for_how_many_samples_it_holds():
    """Twice the same samples must give the same weights, damped or not."""
    for damping in (0.0, 0.3):
        first, second = mlp(), mlp()
        x, y = batch(0)
        trainer(first, damping=damping).step(x, y)
        trainer(second, damping=damping).step(torch.cat([x, x]), torch.cat([y, y]))
        close(joined(first[0]), joined(second[0]), 1e-9)


@pytest.mark.parametrize("sweeps", [None, 2])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_inputs_that_are_always_zero_do_no_harm(sweeps, damping):
    model = mlp()
    x, y = batch(0)
    x[:, 1] = 0.0
    before, codes = joined(model[0]), moved_codes(model, x, y)
    am = trainer(model, forget=1.0, damping=damping, sweeps=sweeps)
    am.step(x, y)
    after = joined(model[0])
    close(after[:, 1], before[:, 1], 1e-12)
    a, c = (torch.stack(part) for part in zip(*pairs(model, codes, 0), strict=True))
    assert (c - a @ after.T).norm() < (c - a @ before.T).norm()
    if sweeps is None and not damping:
        best = torch.linalg.lstsq(a, c, driver="gelsd").solution.T
        assert (c - a @ after.T).norm() <= (c - a @ best.T).norm() * (1 + 1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("samples", [2, 5, 8])
def test_of_all_solutions_of_a_singular_problem_the_nearest_is_taken(samples, dtype):
    """Fewer samples than inputs: the fit is perfect, and what no sample has seen stays as it was."""
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        a, c, W = (torch.randn(*s, generator=generator, dtype=F64) for s in ((samples, 10), (samples, 3), (3, 10)))
        A, B = a.T @ a / samples, c.T @ a / samples
        V = W + solve(A.to(dtype), (B - W @ A).to(dtype), 0.0).V.double()
        wanted = W + (c - a @ W.T).T @ torch.linalg.pinv(a).T
        close(V, wanted, 1e-5 if dtype is torch.float64 else 2e-2)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize(
    "options",
    [{"forget": 0.0, "damping": 0.0}, {"forget": 0.0}, {"forget": 0.0, "sweeps": 1}, {"forget": 0.0, "steps": 1}],
    ids=["solve", "damped", "sweep", "descent"],
)
def test_fitting_the_hidden_weights_never_raises_f(options, n):
    for seed in range(6):
        model = mlp(seed=seed)
        am = trainer(model, rest=altmin.LocalSGD(lr=0.0), **options)
        x, y = batch(seed, n)
        codes = moved_codes(model, x, y)[1:]
        with torch.no_grad():
            before = altmin.objective(am.chain, codes, x, y, MU, nn.CrossEntropyLoss())
            am.step(x, y)
            after = altmin.objective(am.chain, codes, x, y, MU, nn.CrossEntropyLoss())
        assert after < before
