"""Sums over samples, and the weights that are fitted to them."""

import copy
import itertools

import pytest
import reference
import torch
from coactivation_cases import (
    F64,
    MU,
    batch,
    close,
    constant,
    joined,
    memories,
    mlp,
    pairs,
    problem,
    trainer,
)
from conftest import residuals_of, update_codes
from hypothesis import given
from hypothesis import strategies as st
from splitting_reference import least_squares
from torch import Tensor, nn

import altmin
from altmin.common.errors import Diverged
from altmin.core.weights.sums import Sums, descend, solve, sweep

# -- A and B ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_plain_memory_is_the_sum_over_all_samples_of_all_batches(bias):
    model = mlp(bias)
    am = trainer(model, forget=1.0, damping=0.1)
    seen: dict[int, list] = {0: [], 1: []}
    for i in range(3):
        x, y = batch(i)
        for l in seen:
            seen[l] += pairs(model, x, y, l)
        am.step(x, y)
    for l, all_pairs in seen.items():
        A, B = reference.memory(all_pairs)
        memory = memories(am)[l]
        close(memory.A, A)
        close(memory.B, B)
        assert memory.samples == len(all_pairs) == 36


def test_forgetting_weighs_a_batch_by_its_age():
    model = mlp()
    am = trainer(model, forget=0.7)
    parts = []
    for i in range(3):
        x, y = batch(i)
        parts.append(reference.memory(pairs(model, x, y, 1)))
        am.step(x, y)
    close(memories(am)[1].A, 0.49 * parts[0][0] + 0.7 * parts[1][0] + parts[2][0])
    close(memories(am)[1].B, 0.49 * parts[0][1] + 0.7 * parts[1][1] + parts[2][1])
    assert memories(am)[1].samples == pytest.approx(12 * (0.49 + 0.7 + 1))


@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    bias=st.booleans(),
    one_dimension=st.booleans(),
)
def test_a_convolutions_memory_is_the_sum_over_its_patches(kernel, stride, padding, dilation, bias, one_dimension):
    torch.manual_seed(0)
    settings = {"stride": stride, "padding": padding, "dilation": dilation}
    if one_dimension:
        conv = nn.Conv1d(2, 3, kernel[1], bias=bias, **{k: v[1] for k, v in settings.items()}).double()
        x = torch.randn(2, 2, 6, dtype=F64)
        kernel, flat = (1, kernel[1]), x.unsqueeze(2)
        settings = {"stride": (1, stride[1]), "padding": (0, padding[1]), "dilation": (1, dilation[1])}
    else:
        conv = nn.Conv2d(2, 3, kernel, bias=bias, **settings).double()
        flat = x = torch.randn(2, 2, 5, 6, dtype=F64)
    head = nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(conv(x)[0].numel(), 3).double())
    model, y = nn.Sequential(conv, *head), torch.tensor([0, 2])
    code = update_codes(model, altmin.GradientCodes(), x, y, MU)[1][0]
    am = trainer(model, forget=1.0)
    am.step(x, y)
    seen = []
    for t in range(2):
        places = reference.patches(flat[t], kernel_size=kernel, **settings)
        targets = code[t].flatten(1).T
        assert len(places) == len(targets)
        for a, c in zip(places, targets, strict=True):
            seen.append((torch.cat([a, torch.ones(1 if bias else 0, dtype=F64)]), c))
    A, B = reference.memory(seen)
    close(memories(am)[0].A, A)
    close(memories(am)[0].B, B)


@pytest.mark.parametrize("rate", [0.5, 30.0])
def test_with_a_rate_a_code_asks_for_a_gradient_step_of_that_length_on_its_own_samples_loss(rate):
    model = mlp()
    x, y = batch(0)
    W = joined(model[2])
    delta = residuals_of(model, altmin.GradientCodes(), x, y, MU)[1].delta * len(x)  # of a sum over samples
    asked = [(a, W @ a - rate * d) for (a, _), d in zip(pairs(model, x, y, 1), delta, strict=True)]
    am = trainer(model, rate=rate)
    am.step(x, y)
    A, B = reference.memory(asked)
    close(memories(am)[1].A, A)
    close(memories(am)[1].B, B)


# -- what memory cannot serve -----------------------------------------------------------------------------------------


def test_blocks_that_memory_cannot_serve_are_left_to_the_rest():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 2, 3), nn.ReLU()),
        *(nn.Conv2d(2, 2, 3, groups=2), nn.ReLU()),
        *(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.ReLU()),
        *(nn.ConvTranspose2d(2, 2, 1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU()),
        *(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 3)),
    ).double()
    x, y = torch.randn(9, 1, 6, 6, dtype=F64), torch.randint(3, (9,))
    twin = copy.deepcopy(model)
    model[14].bias.requires_grad_(False)  # a frozen parameter: not for a solve of all
    am = altmin.AltMin(model, weights=altmin.FittedMemory(rest=altmin.LocalSGD(lr=0.05)), penalty=constant())
    am.step(x, y)
    assert sorted(memories(am)) == [0, 5]
    frozen = model[14].bias
    assert torch.equal(frozen, twin[14].bias)
    altmin.AltMin(twin, weights=altmin.LocalSGD(lr=0.05), penalty=constant()).step(x, y)
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        served = name.split(".")[0] in ("0", "12")
        if p is frozen:
            continue
        assert torch.equal(p, q) != served, f"{name} should {'not ' * served}be left to the rest"


@pytest.mark.parametrize("options", [{"forget": -0.5}, {"damping": -1}, {"sweeps": 0}, {"rate": 0}, {"l1": 0.1}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        altmin.FittedMemory(**options)


# -- the fit ----------------------------------------------------------------------------------------------------------


def test_plain_memory_fits_least_squares_on_all_codes_seen():
    model = mlp()
    am = trainer(model, forget=1.0, damping=0.0, sweeps=None)
    seen: dict[int, list] = {0: [], 1: []}
    for i in range(4):
        x, y = batch(i, n=20)
        for l in seen:
            seen[l] += pairs(model, x, y, l)
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
    V, left = sweep(A, R)
    new = W + V
    close(left, R - V @ A)
    close(new, reference.coordinate_descent(W, A, B))
    assert reference.surrogate(new, A, B) <= reference.surrogate(W, A, B) + 1e-9


def test_many_sweeps_end_where_the_solve_does():
    a, c, A, B, W = problem(0)
    swept = W
    for _ in range(300):
        swept = swept + sweep(A, B - swept @ A)[0]
    exact = W + solve(A, B - W @ A, damping=0.0)[0]
    close(swept, exact, 1e-9)
    close(exact, torch.linalg.lstsq(a, c).solution.T, 1e-9)


@pytest.mark.parametrize("sweeps", [1, 3])
def test_training_with_sweeps_is_that_many_passes_over_the_columns(sweeps):
    model = mlp()
    x, y = batch(0)
    wanted = []
    for l in range(2):
        W, (A, B) = joined(model[2 * l]), reference.memory(pairs(model, x, y, l))
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
    change, left = solve(A, R, damping)
    close(left, R - change @ A)
    V = (W + change).requires_grad_()
    weight = damping * A.diagonal().mean()
    value = reference.surrogate(V, A, B) + weight * (V - W).square().sum()
    (gradient,) = torch.autograd.grad(value, V)
    assert gradient.abs().max() < 1e-9
    assert (V - W).norm() < solve(A, R, 0.0)[0].norm()


@given(seed=st.integers(0, 10**6), columns=st.integers(1, 7), rows=st.integers(1, 4), damping=st.floats(0.01, 30))
def test_conjugate_gradients_end_where_the_damped_solve_does_and_never_rise_on_the_way(seed, columns, rows, damping):
    _, _, A, B, W = problem(seed, columns, rows)
    R, ridge = B - W @ A, damping * A.diagonal().mean()

    def value(V):
        return reference.surrogate(V, A, R) + ridge * V.square().sum()

    changes = [descend(A, R, damping, steps) for steps in range(1, columns + 1)]
    values = [value(torch.zeros_like(W)), *(value(V) for V, _ in changes)]
    assert all(b <= a + 1e-9 * (1 + abs(a)) for a, b in itertools.pairwise(values))
    close(changes[-1][0], solve(A, R, damping)[0], 1e-6)
    for V, left in changes:
        close(left, R - V @ A, 1e-8)


def test_one_step_goes_along_the_gradient_as_far_as_is_best_for_each_row():
    _, _, A, B, W = problem(3)
    R, ridge = B - W @ A, 0.7 * A.diagonal().mean()
    V = descend(A, R, 0.7, 1)[0]
    for row, asked in zip(V, R, strict=True):
        lengths = torch.linspace(0, 0.2, 20001, dtype=F64)
        tried = lengths[:, None] * asked
        values = ((tried @ A) * tried).sum(1) - 2 * tried @ asked + ridge * tried.square().sum(1)
        close(row, tried[values.argmin()], 1e-4 * asked.abs().max())


def test_nothing_asked_is_nothing_changed():
    A, R = problem(0)[2], torch.zeros(3, 5, dtype=F64)
    for V, left in (descend(A, R, 0.0, 3), descend(torch.zeros_like(A), R, 1.0, 1), sweep(A, R), solve(A, R, 0.1)):
        assert torch.equal(V, R)
        assert torch.equal(left, R)


def test_what_codes_still_ask_is_told_by_all_codes_and_the_present_weights():
    """R is kept from step to step without B: over many steps it stays B - W A for the B of the sums."""
    for options in ({"steps": 1}, {"steps": 3}, {"steps": None}, {"sweeps": 1}):
        model = mlp()
        am = trainer(model, forget=0.8, **options)
        A, B = 0.0, 0.0
        for i in range(12):
            x, y = batch(i)
            a, b = reference.memory(pairs(model, x, y, 1))
            A, B = 0.8 * A + a, 0.8 * B + b
            am.step(x, y)
        close(memories(am)[1].A, A)
        close(memories(am)[1].B, B, 1e-9)
        close(am.updates.states[1]["R"], B - joined(model[2]) @ A, 1e-8)


@pytest.mark.parametrize("sweeps", [None, 2])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_inputs_that_are_always_zero_do_no_harm(sweeps, damping):
    model = mlp()
    x, y = batch(0)
    x[:, 1] = 0.0
    before, asked = joined(model[0]), pairs(model, x, y, 0)
    am = trainer(model, forget=1.0, damping=damping, sweeps=sweeps)
    am.step(x, y)
    after = joined(model[0])
    close(after[:, 1], before[:, 1], 1e-12)
    a, c = (torch.stack(part) for part in zip(*asked, strict=True))
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
        V = W + solve(A.to(dtype), (B - W @ A).to(dtype), 0.0)[0].double()
        wanted = W + (c - a @ W.T).T @ torch.linalg.pinv(a).T
        close(V, wanted, 1e-5 if dtype is torch.float64 else 2e-2)


# -- least squares ----------------------------------------------------------------------------------------------------


def samples(n: int = 40, seed: int = 0, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=g, dtype=dtype), torch.randn(n, 3, generator=g, dtype=dtype)


def sums(a: Tensor, z: Tensor, bias: bool = True) -> Sums:
    found = Sums(4, 3, bias)
    for part in (slice(0, 11), slice(11, None)):
        found.add(a[part], z[part])
    return found


@pytest.mark.parametrize("ridge, proximal", [(0.0, 0.0), (2.0, 0.0), (0.0, 3.0), (0.5, 0.7)])
def test_weights_are_those_of_a_stacked_least_squares_problem(ridge: float, proximal: float) -> None:
    a, z = samples()
    old = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=F64)
    expected = least_squares(a, z, ridge, proximal, old)
    assert torch.allclose(sums(a, z).solve(ridge, proximal, old), expected, atol=1e-10)


def test_without_bias_there_is_no_constant() -> None:
    a, z = samples()
    expected = torch.linalg.lstsq(a, z).solution.mT
    assert torch.allclose(sums(a, z, bias=False).solve(), expected, atol=1e-10)


def test_sums_of_single_precision_are_kept_in_double() -> None:
    """4096 chunks of one number: in float32, 1e8 + 1 is 1e8."""
    found = Sums(1, 1, bias=False)
    found.add(torch.tensor([[1e4]]), torch.tensor([[1e4]]))
    for _ in range(64):
        found.add(torch.ones(1, 1), torch.ones(1, 1))
    assert found.A.item() == found.B.item() == 1e8 + 64


@pytest.mark.parametrize("case", ["singular", "not finite"])
def test_a_fit_without_an_answer_is_said_to_diverge(case: str) -> None:
    a, z = samples()
    if case == "singular":
        a[:, 1] = 3.0  # the same as the bias
    else:
        z[0, 0] = torch.inf
    with pytest.raises(Diverged):
        sums(a, z).solve()
