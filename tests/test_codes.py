"""Encoding and the code update against the naive reference, and what they promise for any net."""

import copy

import pytest
import reference
import torch
from conftest import residual, term, update_codes
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.codes.linesearch import FitAbove

F64 = torch.float64


def net(*modules: nn.Module, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return copy.deepcopy(nn.Sequential(*modules)).double()


def mlp(activation, depth: int = 3, width: int = 5, inputs: int = 4, outputs: int = 3, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(inputs, width)]
    for _ in range(depth - 1):
        layers += [activation(), nn.Linear(width, width)]
    return nn.Sequential(*layers, activation(), nn.Linear(width, outputs)).double()


def batch(n: int = 6, inputs: int = 4, outputs: int = 3, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, inputs, generator=generator, dtype=F64)
    return x, torch.randint(outputs, (n,), generator=generator)


def expected(model, codes: reference.Codes, x, y, mu, loss=reference.cross_entropy) -> list[Tensor]:
    """The moved codes of the reference: for each hidden layer those of all samples."""
    layers = reference.of(model)
    each = [codes.update(layers, x[t], y[t], mu, loss) for t in range(len(x))]
    return [torch.stack([c[l] for c in each]).detach() for l in range(len(layers) - 1)]


def same(ours, theirs, tolerance: float = 1e-10) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


ACTIVATIONS = pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Identity])


# -- encode -----------------------------------------------------------------------------------------------------------


@ACTIVATIONS
def test_encoding_is_the_forward_pass_of_the_equations(activation):
    model, (x, y) = mlp(activation), batch()
    encoded, _, _ = update_codes(model, altmin.GradientCodes(), x, y, 1.0)
    layers = reference.of(model)
    each = [reference.encode(layers, x[t]) for t in range(len(x))]
    same(encoded, [torch.stack([c[l] for c in each]) for l in range(len(layers))], 1e-12)


# -- the fixed step ---------------------------------------------------------------------------------------------------


@ACTIVATIONS
@pytest.mark.parametrize("mu", [0.05, 3.0])
@pytest.mark.parametrize(
    "steps, momentum, l1", [(1, 0.0, 0.0), (4, 0.0, 0.0), (4, 0.7, 0.0), (1, 0.0, 0.05), (3, 0.5, 0.02)]
)
def test_fixed_steps_are_those_of_the_reference(activation, mu, steps, momentum, l1):
    model, (x, y) = mlp(activation), batch()
    codes = altmin.GradientCodes(steps=steps, lr=0.3, momentum=momentum, l1=l1)
    encoded, ours, _ = update_codes(model, codes, x, y, mu)
    theirs = expected(model, reference.Codes(steps, 0.3, momentum, l1), x, y, mu)
    same(ours, theirs)
    assert all((a - b).abs().max() > 1e-6 for a, b in zip(ours, encoded, strict=False)), "every code must have moved"


def test_fixed_steps_on_the_squared_error_are_those_of_the_reference():
    model, (x, _) = mlp(nn.Tanh), batch()
    y = torch.randn(6, 3, dtype=F64)
    _, ours, _ = update_codes(model, altmin.GradientCodes(steps=3, lr=0.2), x, y, 0.5, nn.MSELoss())
    same(ours, expected(model, reference.Codes(3, 0.2), x, y, 0.5, reference.squared_error))


def test_a_large_l1_sets_codes_to_zero():
    model, (x, y) = mlp(nn.Tanh), batch()
    _, ours, _ = update_codes(model, altmin.GradientCodes(lr=0.1, l1=50.0), x, y, 1.0)
    assert all(torch.equal(c, torch.zeros_like(c)) for c in ours)


# -- the exact line search --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU])
@pytest.mark.parametrize("mu", [1e-2, 1.0, 100.0])
def test_one_exact_step_is_the_minimiser_that_the_reference_finds_by_search(activation, mu):
    model, (x, y) = mlp(activation), batch()
    _, ours, _ = update_codes(model, altmin.GradientCodes(), x, y, mu)
    same(ours, expected(model, reference.Codes(), x, y, mu), 2e-6)


@ACTIVATIONS
@pytest.mark.parametrize("mu", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_several_exact_steps_are_those_of_the_reference(activation, mu, momentum):
    model, (x, y) = mlp(activation), batch()
    _, ours, _ = update_codes(model, altmin.GradientCodes(steps=3, momentum=momentum), x, y, mu)
    same(ours, expected(model, reference.Codes(3, None, momentum), x, y, mu), 1e-8)


@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU])
def test_exact_steps_on_the_squared_error_are_those_of_the_reference(activation):
    model, (x, _) = mlp(activation), batch()
    y = torch.randn(6, 3, dtype=F64)
    for steps in (1, 2):
        _, ours, _ = update_codes(model, altmin.GradientCodes(steps=steps), x, y, 0.3, nn.MSELoss())
        same(ours, expected(model, reference.Codes(steps), x, y, 0.3, reference.squared_error), 2e-6)


def test_in_the_linear_regime_a_hidden_code_goes_as_far_as_the_formula_says():
    """a = |g|^2 / (|Jg|^2 + |g|^2) with g = J^T d, per sample (spec, section 9)."""
    torch.manual_seed(0)
    layer = nn.Linear(5, 4).double()
    block = altmin.split(nn.Sequential(layer)).blocks[0]
    c, t = torch.randn(6, 5, dtype=F64), torch.randn(6, 4, dtype=F64)
    with torch.no_grad():
        p = block.parameters()
        move = altmin.GradientCodes().descend(block, p, block.forward(p, c)[1], c, FitAbove(t))
    J = layer.weight.detach()
    for i in range(6):
        g = J.T @ t[i]
        a = (g @ g) / ((J @ g) @ (J @ g) + g @ g)
        torch.testing.assert_close(move.offset[i], a * g)
        torch.testing.assert_close(move.after.force[i], t[i] - a * J @ g)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.GELU, nn.Softplus])
def test_for_small_moves_every_smooth_net_obeys_the_same_formulas(activation):
    """A large mu makes the last code's move small; then each step is the one of the linearised blocks."""
    mu = 1e7
    model, (x, y) = mlp(activation), batch()
    encoded, moved, _ = update_codes(model, altmin.GradientCodes(), x, y, mu)
    offsets = [a - b for a, b in zip(moved, encoded, strict=False)]
    layers = reference.of(model)
    for t in range(len(x)):
        c = reference.encode(layers, x[t])[:-1]
        J = [torch.autograd.functional.jacobian(lambda c, l=l: layers.layer(l + 1, c), c[l]) for l in range(3)]
        o = layers.layer(3, c[2])
        H = torch.diag(F.softmax(o, 0)) - torch.outer(F.softmax(o, 0), F.softmax(o, 0))
        g = -reference.gradient(lambda c, t=t: reference.cross_entropy(layers.layer(3, c), y[t]), c[2])
        d = (g @ g) / (g @ J[2].T @ H @ J[2] @ g + 2 * mu * g @ g) * g
        torch.testing.assert_close(offsets[2][t], d, rtol=1e-5, atol=1e-14)
        for l in (1, 0):
            g = J[l].T @ d
            d = (g @ g) / ((J[l] @ g) @ (J[l] @ g) + g @ g) * g
            torch.testing.assert_close(offsets[l][t], d, rtol=1e-4, atol=1e-13)


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 1)], ids=str)
def test_unless_a_kink_stops_it_a_hidden_code_stops_at_the_lowest_point_of_its_line(pool):
    torch.manual_seed(0)
    core = nn.Conv2d(2, 3, 2).double()
    block = altmin.split(nn.Sequential(nn.ReLU(), pool, core)).blocks[0]
    c = torch.randn(40, 2, 6, 6, dtype=F64)
    p = [q.detach() for q in block.parameters()]
    out, state = block.forward(p, c)
    free = 0
    for size in (1.0, 1e-6):
        t = size * torch.randn_like(out)
        move = altmin.GradientCodes().descend(block, p, copy.deepcopy(state), c, FitAbove(t))
        share = torch.ones(40, dtype=F64, requires_grad=True)
        d = share.view(-1, 1, 1, 1) * move.offset
        here = core(pool(torch.relu(c + d)))
        value = ((t - (here - out)).square().flatten(1).sum(1) + d.square().flatten(1).sum(1)) / 2
        (slope,) = torch.autograd.grad(value.sum(), share)
        start = t.square().flatten(1).sum(1) / 2
        gain = start - value.detach()
        assert (gain > 0).all()
        g = block.pull(p, state, t)
        unstopped = F.cosine_similarity(move.offset.flatten(1), g.flatten(1)) > 1 - 1e-12
        free += int(unstopped.sum())
        if size < 1:  # so short that no unit changes sides on the way
            assert (slope.abs() <= 1e-9 * start)[unstopped].all()
    assert free >= 40


def test_a_rectified_unit_never_crosses_zero(monkeypatch):
    model, (x, y) = mlp(nn.ReLU, width=20, depth=3), batch(30)

    def crossings() -> int:
        encoded, moved, _ = update_codes(model, altmin.GradientCodes(), x, y, 1e-3)
        for before, after in zip(encoded, moved, strict=False):
            assert torch.equal(after[before <= 0], before[before <= 0]), "a silent unit has no reason to move"
        return sum(int((after[before > 0] < 0).sum()) for before, after in zip(encoded, moved, strict=False))

    assert crossings() == 0
    monkeypatch.setattr(altmin.chain.Block, "room", lambda block, state: None)
    assert crossings() > 0, "at so small a mu some unit must be in need of being stopped"


@pytest.mark.parametrize("steps", [1, 2, 5, 50])
def test_more_steps_come_closer_to_the_best_code(steps):
    """The last code's problem on a linear net with squared error is a quadratic with a known minimum."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double()
    x, y, mu = torch.randn(6, 4, dtype=F64), torch.randn(6, 3, dtype=F64), 0.1
    _, (ours,), _ = update_codes(model, altmin.GradientCodes(steps=steps), x, y, mu, nn.MSELoss())
    W, b, home = model[1].weight.detach(), model[1].bias.detach(), model[0](x).detach()
    best = torch.linalg.solve(W.T @ W / 3 + mu * torch.eye(5, dtype=F64), (W.T @ (y - b).T / 3 + mu * home.T)).T
    error = [(code - best).norm() for code in (home, ours)]
    assert error[1] < {1: 0.9, 2: 0.8, 5: 0.5, 50: 1e-3}[steps] * error[0]


def test_a_tolerance_stops_the_steps_of_a_settled_code():
    model, (x, y) = mlp(nn.Tanh), batch()
    few = update_codes(model, altmin.GradientCodes(steps=2), x, y, 1.0)[1]
    stopped = update_codes(model, altmin.GradientCodes(steps=200, tolerance=0.999), x, y, 1.0)[1]
    once = update_codes(model, altmin.GradientCodes(steps=1), x, y, 1.0)[1]
    assert torch.equal(stopped[-1], once[-1])
    assert not torch.equal(few[-1], once[-1])


# -- the local problems that are left ---------------------------------------------------------------------------------


@ACTIVATIONS
@pytest.mark.parametrize(
    "codes", [altmin.GradientCodes(lr=0.2, steps=2), altmin.GradientCodes(), altmin.GradientCodes(3)]
)
def test_what_is_left_for_each_block_is_its_own_residual(activation, codes):
    mu = 0.3
    model, (x, y) = mlp(activation), batch()
    _, moved, problems = update_codes(model, codes, x, y, mu)
    layers, below = reference.of(model), [x, *moved]
    for l in range(len(layers)):
        out = torch.stack([layers.layer(l, below[l][t]) for t in range(len(x))])
        if l < len(layers) - 1:
            left = moved[l] - out
            values = left.square().sum(1)
        else:
            left = F.one_hot(y, 3) - F.softmax(out, 1)
            values = torch.stack([reference.cross_entropy(out[t], y[t]) for t in range(len(x))])
        torch.testing.assert_close(residual(problems[l]), left, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(term(problems[l]), values, rtol=1e-10, atol=1e-11)


# -- what holds for any net -------------------------------------------------------------------------------------------


def custom(output: Tensor, y: Tensor) -> Tensor:
    return F.softplus(-output.gather(1, y.unsqueeze(1))).mean() + 0.01 * output.square().mean()


LOSSES = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "label smoothing": nn.CrossEntropyLoss(label_smoothing=0.2),
    "squared error": nn.MSELoss(),
    "custom": custom,
}
NETS = {
    "relu": lambda: mlp(nn.ReLU, width=8),
    "tanh": lambda: mlp(nn.Tanh, width=8),
    "mixed": lambda: net(
        *(nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU()),
        *(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3)),
    ),
    "convolution": lambda: net(
        *(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 3, 2)),
        *(nn.Tanh(), nn.Flatten(), nn.Linear(3, 3)),
    ),
    "batch norm": lambda: net(
        *(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Tanh()),
        nn.Linear(6, 3),
    ),
    "unknown modules": lambda: net(nn.Linear(4, 6), nn.PReLU(), nn.Softmax(1), nn.Linear(6, 3)),
}


def sum_of(loss, output: Tensor, y: Tensor) -> float:
    return float(loss(output, y)) * len(output)


@example(name="relu", loss="cross-entropy", exponent=-3.0, steps=1, momentum=0.0, scale=10.0, seed=1)
@example(name="relu", loss="cross-entropy", exponent=-2.0, steps=1, momentum=0.0, scale=10.0, seed=3)
@given(
    name=st.sampled_from(list(NETS)),
    loss=st.sampled_from(list(LOSSES)),
    exponent=st.floats(-3, 3),
    steps=st.sampled_from([1, 3]),
    momentum=st.sampled_from([0.0, 0.9]),
    scale=st.sampled_from([0.3, 1.0, 10.0]),
    seed=st.integers(0, 1000),
)
def test_exact_codes_never_raise_f_nor_any_blocks_own_terms(name, loss, exponent, steps, momentum, scale, seed):
    model, mu = NETS[name](), 10.0**exponent
    x, y = batch(8, seed=seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale)
    if loss == "squared error":
        y = torch.randn(8, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))
    codes = altmin.GradientCodes(steps=steps, momentum=momentum)
    encoded, moved, _ = update_codes(model, codes, x, y, mu, LOSSES[loss])
    chain = altmin.split(model)
    before = float(LOSSES[loss](encoded[-1], y))
    after = float(altmin.objective(chain, moved, x, y, mu, LOSSES[loss]).detach())
    assert after <= before + 1e-12 * abs(before)
    # Block by block, in the order in which the codes move: what the term above lost is more than what was paid below.
    below = [x, *moved]
    with torch.no_grad():
        outputs = [block.forward(p, c)[0] for block, p, c in zip(chain, chain.parameters(), below, strict=True)]
    cost = [float((c - e).square().sum()) * mu for c, e in zip(moved, encoded, strict=False)]
    gain = sum_of(LOSSES[loss], encoded[-1], y) - sum_of(LOSSES[loss], outputs[-1], y)
    slack = 1e-11 * (1 + abs(before) * 8 + sum(cost))
    assert gain >= cost[-1] - slack
    for l in range(len(moved) - 1):
        fit = [float((moved[l + 1] - out).square().sum()) * mu for out in (encoded[l + 1], outputs[l + 1])]
        assert fit[0] - fit[1] >= cost[l] - slack


@pytest.mark.parametrize("name", ["relu", "tanh", "mixed", "convolution"])
@pytest.mark.parametrize("mu, scale", [(1e-2, 1.0), (1.0, 1.0), (1e-3, 10.0), (1e-2, 10.0)])
def test_no_samples_own_objective_rises(name, mu, scale):
    """Large weights make the loss flat far away, where the Gauss-Newton step goes too far for some samples."""
    for seed in range(5):
        model, (x, y) = NETS[name](), batch(16, seed=seed)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(scale)
        encoded, moved, problems = update_codes(model, altmin.GradientCodes(), x, y, mu)
        loss = F.cross_entropy(encoded[-1], y, reduction="none")
        total = term(problems[-1]) + mu * (moved[-1] - encoded[len(moved) - 1]).flatten(1).square().sum(1)
        assert (total <= loss * (1 + 1e-12) + 1e-14).all()
        if scale == 1.0:
            assert (total < loss - 1e-9).all(), "every sample has something to gain here"


@pytest.mark.parametrize("name", NETS)
def test_each_samples_codes_are_its_own_unless_batch_norm_couples_them(name):
    model, (x, y) = NETS[name](), batch(8)
    together = update_codes(model, altmin.GradientCodes(steps=2), x, y, 0.5)[1]
    if name == "batch norm":
        model.eval()
        together = update_codes(model, altmin.GradientCodes(steps=2), x, y, 0.5)[1]
    alone = [update_codes(model, altmin.GradientCodes(steps=2), x[t : t + 1], y[t : t + 1], 0.5)[1] for t in range(8)]
    same(together, [torch.cat([c[l] for c in alone]) for l in range(len(together))], 1e-11)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_samples_that_batch_norm_couples_take_one_step_all_together(activation):
    block = altmin.split(net(activation(), nn.Linear(6, 5), nn.BatchNorm1d(5))).blocks[0]
    p, c = [q.detach() for q in block.parameters()], torch.randn(8, 6, dtype=F64)
    out, state = block.forward(p, c)
    t = 1e-4 * torch.randn_like(out)
    move = altmin.GradientCodes().descend(block, p, state, c, FitAbove(t))
    g = block.pull(p, state, t)
    Jg = block.push(p, state, g)
    step = g.square().sum() / (Jg.square().sum() + g.square().sum())
    torch.testing.assert_close(move.offset, step * g, rtol=1e-10, atol=1e-18)


def test_a_step_that_is_still_too_long_after_all_halvings_is_not_taken():
    model, (x, y) = mlp(nn.ReLU, depth=1), batch()
    encoded, moved, _ = update_codes(model, altmin.GradientCodes(), x, y, 1.0, lambda o, y: 1e9 * o.square().mean())
    assert torch.equal(moved[0], encoded[0])


@example(exponent=-3.0, scale=1.0, seed=48)
@given(exponent=st.floats(-4, 1), scale=st.sampled_from([1.0, 4.0, 20.0]), seed=st.integers(0, 1000))
def test_one_samples_too_long_step_does_not_change_anothers(exponent, scale, seed):
    """Where the Gauss-Newton step overshoots for some samples, only theirs is shortened."""
    model, (x, y) = mlp(nn.ReLU, depth=2, width=8), batch(8, seed=seed)
    with torch.no_grad():
        model[-1].weight.mul_(scale)
    mu = 10.0**exponent
    together = update_codes(model, altmin.GradientCodes(), x, y, mu)[1]
    alone = [update_codes(model, altmin.GradientCodes(), x[t : t + 1], y[t : t + 1], mu)[1] for t in range(8)]
    same(together, [torch.cat([c[l] for c in alone]) for l in range(len(together))], 1e-9)


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_l1_with_exact_steps_lowers_f_with_its_l1_term_and_thins_codes_out(name):
    model, (x, y) = NETS[name](), batch(8)
    mu, l1 = 0.5, 0.3

    def whole(codes):
        f = altmin.objective(altmin.split(model), codes, x, y, mu, nn.CrossEntropyLoss()).detach()
        return float(f) + l1 * sum(float(c.abs().sum()) for c in codes) / len(x)

    encoded, moved, _ = update_codes(model, altmin.GradientCodes(steps=3, l1=l1), x, y, mu)
    assert whole(moved) < whole(encoded[:-1])
    assert sum(int((c == 0).sum()) for c in moved) > 0
    plain = update_codes(model, altmin.GradientCodes(steps=3), x, y, mu)[1]
    assert whole(moved) < whole(plain)


def test_exact_steps_with_l1_are_those_of_the_reference_for_the_last_code():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = batch()
    _, ours, _ = update_codes(model, altmin.GradientCodes(steps=2, l1=0.05), x, y, 0.4)
    same(ours, expected(model, reference.Codes(2, None, 0.0, 0.05), x, y, 0.4), 1e-9)


# -- one small step is backprop's direction ---------------------------------------------------------------------------


def alignment(model: nn.Sequential, x: Tensor, y: Tensor) -> list[float]:
    """The cosine between each parameter's local gradient and backprop's, where the latter is not zero."""
    loss = nn.CrossEntropyLoss()
    twin = copy.deepcopy(model)
    loss(twin(x), y).backward()
    am = altmin.AltMin(model, loss, altmin.GradientCodes(lr=1e-5), altmin.LocalSGD(lr=0.0), altmin.Penalty(1.0))
    am.step(x, y)
    largest = max(float(p.grad.abs().max()) for p in twin.parameters())
    return [
        float(F.cosine_similarity(p.grad.flatten(), q.grad.flatten(), 0, eps=0))
        for p, q in zip(model.parameters(), twin.parameters(), strict=True)
        if float(q.grad.abs().max()) > 1e-12 * largest
    ]


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("depth", [2, 3, 5, 10, 20])
def test_one_small_step_gives_every_block_backprops_direction(activation, depth):
    torch.manual_seed(depth)
    model = altmin.models.mlp(10, [16] * (depth - 1), 3, activation).double()
    cosines = alignment(model, *batch(20, inputs=10))
    assert len(cosines) == 2 * depth
    assert min(cosines) > 0.9999


def test_one_small_step_gives_lenet_backprops_direction():
    torch.manual_seed(0)
    model = altmin.models.lenet5().double()
    cosines = alignment(model, torch.randn(4, 1, 28, 28, dtype=F64), torch.tensor([3, 0, 9, 1]))
    assert len(cosines) == 10
    assert min(cosines) > 0.9999


def test_one_small_step_gives_convolutions_with_batch_norm_backprops_direction():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 2), nn.BatchNorm2d(6), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3)),
    ).double()
    cosines = alignment(model, torch.randn(12, 1, 8, 8, dtype=F64), torch.randint(3, (12,)))
    assert len(cosines) == 2 * 7 - 3, "all but the three biases before a batch norm"
    assert min(cosines) > 0.9999


# -- depth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation, depth", [(nn.ReLU, 20), (nn.Tanh, 20), (nn.Sigmoid, 12), (nn.Sigmoid, 45)])
def test_in_float32_deep_nets_learn_in_the_direction_of_float64(activation, depth):
    torch.manual_seed(0)
    model = altmin.models.mlp(20, [32] * (depth - 1), 5, activation)
    x, y = torch.randn(30, 20), torch.randint(5, (30,))
    double = copy.deepcopy(model).double()
    for m, data in ((model, x), (double, x.double())):
        altmin.AltMin(m, weights=altmin.LocalSGD(lr=0.0, normalise=True)).step(data, y)
    for p, q in zip(model.parameters(), double.parameters(), strict=True):
        assert F.cosine_similarity(p.grad.double().flatten(), q.grad.flatten(), 0, eps=0) > 0.999
        assert 0.99 < p.grad.norm() / q.grad.norm() < 1.01


# -- wrong settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lr", ["best", 0.0, -1.0, float("nan")])
def test_a_code_step_that_is_neither_exact_nor_positive_is_refused(lr):
    with pytest.raises(ValueError, match='lr is "exact" or a number above zero'):
        altmin.GradientCodes(lr=lr)


@pytest.mark.parametrize("options", [{"steps": 0}, {"momentum": -0.1}, {"tolerance": -1.0}, {"l1": -0.5}], ids=str)
def test_settings_below_their_least_value_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=rf"{name} of GradientCodes must be at least \d, given {value}"):
        altmin.GradientCodes(**options)
