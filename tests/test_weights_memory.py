"""The solved memory against its equations, written out in float64: gradients by autograd, A by loops over patches."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from graph_cases import F64
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus.context import BatchShard, Context
from altmin.core.weights.layer_memory import COEFFICIENTS, Layer, LayerMemory, factors, inverse_roots, sketch, solved
from altmin.core.weights.memory import sampled

STEPS = 23


def patches(m: nn.Module, x: Tensor) -> np.ndarray:
    """The inputs of a layer, row by row; of a convolution at every place, of each group of channels:
    (groups, rows, inputs)."""
    if isinstance(m, nn.Linear):
        return np.stack([x.reshape(-1, x.shape[-1]).numpy()])
    dims = len(m.kernel_size)
    x = F.pad(x, [q for p in reversed(m.padding) for q in (p, p)])
    spans = [d * (k - 1) + 1 for d, k in zip(m.dilation, m.kernel_size, strict=True)]
    starts = [range(0, x.shape[2 + i] - spans[i] + 1, m.stride[i]) for i in range(dims)]
    found = [
        [
            sample[(slice(None), *(slice(i, i + n, d) for i, n, d in zip(at, spans, m.dilation, strict=True)))].reshape(
                -1
            )
            for sample in channels
            for at in itertools.product(*starts)
        ]
        for channels in x.chunk(m.groups, 1)
    ]
    return torch.stack([torch.stack(rows) for rows in found]).numpy()


def inverse_root(S: np.ndarray) -> np.ndarray:
    """The factor by which three polynomials multiply the singular values of V, where S = V V^T, over the eighth root of
    the sum of their eighth powers."""
    squares, vectors = np.linalg.eigh(S)
    s = start = np.sqrt(np.maximum(squares, 0)) / (squares**4).sum() ** (1 / 8)
    for a, b, c in ((8.093369, -23.62043, 17.446152), (3.636586, -2.721927, 0.536546), (2.6613, -1.977155, 0.452616)):
        s = a * s + b * s**3 + c * s**5
    ratio = np.where(start > 1e-9, s / np.maximum(start, 1e-9), 8.093369 * 3.636586 * 2.6613)
    return vectors * ratio @ vectors.T / (squares**4).sum() ** (1 / 8)


class Naive:
    """The rule, from its equations."""

    def __init__(self, model: nn.Module, lr: float, beta: float, forget: float, damping: float, rank: int):
        self.model, self.lr, self.beta, self.forget, self.damping = model, lr, beta, forget, damping
        self.rank = rank
        kinds = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
        self.layers = {m.weight: m for m in model.modules() if isinstance(m, kinds)}
        self.t, self.A, self.M, self.Q, self.R, self.K = 0, {}, {}, {}, {}, {}

    def step(self, x: Tensor, y: Tensor, loss) -> None:
        inputs = {}
        hooks = [
            m.register_forward_hook(lambda m, i, _: inputs.update({m: i[0].detach()})) for m in self.layers.values()
        ]
        self.model.zero_grad()
        loss(self.model(x), y).backward()
        for hook in hooks:
            hook.remove()
        self.t += 1
        for p in self.model.parameters():
            G = p.grad.numpy()
            M = self.M[p] = self.beta * self.M.get(p, 0 * G) + (1 - self.beta) * G
            Q = self.Q[p] = 0.999 * self.Q.get(p, 0 * G) + 0.001 * G**2
            change = M / (1 - self.beta**self.t) / (np.sqrt(Q / (1 - 0.999**self.t)) + 1e-8)
            if p in self.layers:
                U = self.direction(p, self.beta * M + (1 - self.beta) * G, inputs[self.layers[p]])
                change = U * np.linalg.norm(change) / np.linalg.norm(U)
            with torch.no_grad():
                p -= torch.from_numpy(self.lr * change)

    def direction(self, p: Tensor, N: np.ndarray, x: Tensor) -> np.ndarray:
        m, refresh = self.layers[p], self.t < 8 or self.t in (8, 10, 12, 14, 16, 20)
        a, N = patches(m, x), N.reshape(len(N), -1)
        groups = len(a)
        if refresh:
            mean = a.transpose(0, 2, 1) @ a / a.shape[1]
            A = self.A[p] = self.forget * self.A.get(p, 0 * mean) + (1 - self.forget) * mean
            self.R[p] = [self.inverse(each) for each in A]
        Vs = [n @ R for n, R in zip(np.split(N, groups), self.R[p], strict=True)]
        grams = np.stack([V @ V.T if len(V) <= len(V.T) else V.T @ V for V in Vs])
        if a.shape[1] >= 800:
            self.K[p] = grams
        elif refresh:
            share = grams / np.trace(grams, axis1=1, axis2=2).sum()
            self.K[p] = self.forget * self.K.get(p, 0 * share) + (1 - self.forget) * share
        roots = [inverse_root(K) for K in self.K[p]]
        Us = [P @ V if len(V) <= len(V.T) else V @ P for P, V in zip(roots, Vs, strict=True)]
        return np.concatenate(Us).reshape(p.shape)

    def inverse(self, A: np.ndarray) -> np.ndarray:
        """damping s (A + damping s I)^-1, of the approximation of A from (A + shift) S."""
        one, s = np.eye(len(A)), np.trace(A) / len(A)
        S = sketch(torch.from_numpy(A), self.rank).numpy()
        A = A + 2e-3 * np.linalg.norm(A @ S) * one
        A = (A @ S) @ np.linalg.inv(S.T @ A @ S) @ (A @ S).T
        return self.damping * s * np.linalg.inv(A + self.damping * s * one)


class Branches(nn.Module):
    """Layers in two branches, one of them without a bias, and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 5), nn.LayerNorm(5)
        self.a, self.b, self.last = nn.Linear(5, 5), nn.Linear(5, 5, bias=False), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x))
        h = h + torch.tanh(self.a(h)) * torch.sigmoid(self.b(h))
        return self.last(h)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))


def images() -> nn.Module:
    convolutions = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, (2, 3), stride=(2, 1), bias=False)]
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *convolutions, nn.Flatten(), nn.Tanh(), nn.Linear(4, 3))


def groups() -> nn.Module:
    line = [nn.Conv1d(2, 32, 2, groups=2, padding=1, dilation=2), nn.Tanh()]
    box = [nn.Conv3d(2, 32, (1, 2, 2), stride=(1, 2, 1), padding=(0, 1, 0), groups=2), nn.Tanh(), nn.Conv3d(32, 2, 1)]
    return nn.Sequential(
        nn.Unflatten(1, (2, 3)), *line, nn.Flatten(), nn.Linear(96, 8), nn.Unflatten(1, (2, 1, 2, 2)), *box,
        nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


@pytest.mark.parametrize("make", [plain, images, Branches, groups])
@pytest.mark.parametrize("rank", [99, 4], ids=["exact", "sketched"])
@pytest.mark.parametrize("samples", [8, 800], ids=["few rows", "many rows"])
def test_where_codes_do_not_move_it_is_the_rule_on_autograds_gradients(make, rank, samples):
    torch.manual_seed(0)
    model = make().double()
    settings = {"lr": 0.05, "beta": 0.8, "forget": 0.7, "damping": 0.3, "rank": rank}
    naive = Naive(copy.deepcopy(model), **settings)
    rule = altmin.CoActivationMemory(**settings, rows=100_000)
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=rule)
    for _ in range(STEPS):
        x, y = torch.randn(samples, 6, dtype=F64), torch.randint(3, (samples,))
        naive.step(x, y, F.cross_entropy)
        am.step(x, y)
    for ours, theirs in zip(model.parameters(), naive.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_a_sketch_of_full_rank_is_exact_and_the_ridge_keeps_what_it_does_not_see():
    torch.manual_seed(0)
    a, N = torch.randn(40, 9, dtype=F64), torch.randn(4, 9, dtype=F64)
    a[:, 5:] = a[:, :4] @ torch.randn(4, 4, dtype=F64)  # of rank 5
    A, one, ridge = a.mT @ a / 40, torch.eye(9, dtype=F64), torch.full((1, 1), 0.5, dtype=F64)
    exact = 0.5 * N @ torch.linalg.inv(A + (0.5 + 2e-3 * A.norm()) * one)
    torch.testing.assert_close(solved(N, factors([A], [ridge], [one])[0]), exact)
    exact = 0.5 * N @ torch.linalg.inv(A + 0.5 * one)
    S = torch.linalg.qr(torch.randn(9, 6, dtype=F64))[0]
    found = solved(N, factors([A @ S], [ridge], [S])[0])
    assert float((found - exact).norm() / exact.norm()) < 0.03  # the shift is all that differs


def test_the_polynomials_have_the_least_distance_from_one():
    """By Chebyshev's theorem: the error takes its largest size at four points, with alternating signs. The range of
    each is the domain of the next."""
    low, high = 0.01, 1.0
    for a, b, c in COEFFICIENTS:
        s = np.linspace(low, high, 20_001)
        error = a * s + b * s**3 + c * s**5 - 1
        inner = [i for i in range(1, len(s) - 1) if (error[i] - error[i - 1]) * (error[i + 1] - error[i]) < 0]
        largest = np.abs(error).max()
        np.testing.assert_allclose(error[[0, *inner, -1]], largest * np.array([-1, 1, -1, 1]), atol=1e-3)
        low, high = 1 - largest, 1 + largest


def test_inverse_roots_are_near_those_that_make_each_matrix_orthogonal():
    """Matrices of several sizes, small and large ones, and a stack of them."""
    torch.manual_seed(0)
    given = [torch.randn(*shape, dtype=F64) for shape in [(5, 12), (6, 6), (3, 4, 7), (140, 150), (2, 260)]]
    given.append(torch.randn(5, 9))  # of another type
    alone = [inverse_roots([V @ V.mT])[0] for V in given]
    for V, P, one in zip(given, inverse_roots([V @ V.mT for V in given]), alone, strict=True):
        U, _, Vt = torch.linalg.svd(V, full_matrices=False)
        found = P @ V
        values = torch.linalg.svdvals(found)
        assert float(values.max()) < 1.3
        assert float(values.min()) > 0.7 or len(V) == 140  # whose smallest are below 0.01 of the largest
        cosine = float((found * (U @ Vt)).sum() / found.norm() / (U @ Vt).norm())
        assert cosine > 1 / math.sqrt(1 + 0.3**2)  # if half of the values were 0.7, half 1.3
        torch.testing.assert_close(P, one)


@pytest.mark.parametrize("shape", [(7, 9), (9, 7), (300, 140), (140, 300)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("many", [True, False])
def test_layers_of_one_shape_are_computed_together_as_each_alone(shape, groups, many):
    torch.manual_seed(0)
    memory = LayerMemory(0.6, 1.0, 5, 10)
    layers = []
    for _ in range(3):
        M, G = torch.randn(groups * shape[0], shape[1], dtype=F64), torch.randn(groups * shape[0], shape[1], dtype=F64)
        a = torch.randn(groups, 50, shape[1], dtype=F64)
        new = memory.measure(a if groups > 1 else a[0], 1 / 50)
        layers.append(Layer(M, G, memory.init(G, groups), new, many))
        K = layers[-1].state["K"].normal_()
        K.copy_(K @ K.mT)
    narrow = M[:, :-1]
    layers.append(Layer(narrow, narrow, memory.init(narrow, groups), None, many))
    Us, changes = memory.directions(layers, 0.9)
    for layer, U, change in zip(layers, Us, changes, strict=True):
        (alone,), (expected,) = memory.directions([layer], 0.9)
        torch.testing.assert_close(U, alone, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(change, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n, m", [(300, 310), (310, 300), (257, 300), (300, 257)])
def test_large_matrices_are_made_orthogonal_in_blocks_of_their_smaller_side(n, m):
    torch.manual_seed(0)
    memory, G = LayerMemory(0.6, 1.0, 32, 10), torch.randn(n, m, dtype=F64)
    ((U,), _) = memory.directions([Layer(G, G, memory.init(G), None, many=True)], 0.9)
    rows = 100 if min(n, m) == 300 else 86
    for block, expected in zip((U if n <= m else U.mT).split(rows), (G if n <= m else G.mT).split(rows), strict=True):
        torch.testing.assert_close(block, inverse_roots([expected @ expected.mT])[0] @ expected)


def test_places_of_images_and_sequences_are_spread_evenly():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(2), nn.Linear(100, 4)).double()
    conv, linear = (altmin.calculus.map_of(net[i]) for i in (0, 2))
    x = torch.arange(100.0, dtype=F64).view(1, 1, 10, 10).expand(2, 2, 10, 10)
    rows = conv.rows(x, 16)
    assert rows.shape == (2 * 25, 18)  # every second place each way
    assert rows[:25, 4].tolist() == [10.0 * i + j for i in range(0, 10, 2) for j in range(0, 10, 2)]
    assert linear.rows(torch.zeros(2, 33, 100, dtype=F64), 16).shape == (2 * 11, 100)


def test_ranks_take_the_inputs_that_one_process_takes():
    torch.manual_seed(0)
    conv = altmin.calculus.map_of(nn.Conv2d(2, 3, 3))
    x, w = torch.randn(200, 2, 9, 9), torch.rand(200)
    whole, weights, factor = sampled(conv, x, Context(weights=w), 100)
    assert whole.shape == (7 * 16, 18)  # every 32nd sample
    assert factor == 32 / 16
    own = [(0, 77), (77, 1), (78, 122)]
    shards = [Context(BatchShard(lambda t: lambda: t, start, n, 200), w[start : start + n]) for start, n in own]
    parts = [sampled(conv, x[start : start + n], c, 100) for (start, n), c in zip(own, shards, strict=True)]
    assert torch.equal(torch.cat([a for a, _, _ in parts]), whole)
    assert torch.equal(torch.cat([w for _, w, _ in parts]), weights)


@pytest.mark.parametrize("damping", [0.1, 1.0])
@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_products_on_tensor_cores_keep_the_solve_positive(damping, monkeypatch):
    torch.manual_seed(0)
    a = torch.randn(300, 400) * torch.logspace(0, -3, 400) + 3.0
    S = sketch(torch.empty(1, 400), 32)
    A, N = a.mT @ a / 300 / (a * a).mean(), torch.randn(5, 400)
    ridge = torch.full((1, 1), damping)
    exact = solved(N, factors([A @ S], [ridge], [S])[0])
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    a, S, ridge, N = (t.cuda() for t in (a, S, ridge, N))
    found = solved(N, factors([a.mT @ (a @ S) / 300 / (a * a).mean()], [ridge], [S])[0])
    torch.testing.assert_close(found.cpu(), exact, rtol=0.05, atol=0.05)


def test_decay_schedules_and_frozen_layers():
    torch.manual_seed(0)
    model, batch = plain(), (torch.randn(8, 6), torch.randint(3, (8,)))
    model[2].requires_grad_(False)
    frozen = copy.deepcopy(model[2].state_dict())
    am = altmin.AltMin(model, weights=altmin.CoActivationMemory(0.1, weight_decay=0.5, decay_biases=False))
    before = copy.deepcopy(model.state_dict())
    scheduler = torch.optim.lr_scheduler.LambdaLR(am.optimizer, lambda t: 1.0 if t == 0 else 0.0)
    am.step(*batch)
    after = copy.deepcopy(model.state_dict())
    other = plain()
    other.load_state_dict(before)
    other[2].requires_grad_(False)
    altmin.AltMin(other, weights=altmin.CoActivationMemory(0.1)).step(*batch)
    moved = other.state_dict()
    torch.testing.assert_close(after["0.weight"], moved["0.weight"] - 0.05 * before["0.weight"])
    torch.testing.assert_close(after["0.bias"], moved["0.bias"])
    assert all(torch.equal(model[2].state_dict()[name], frozen[name]) for name in frozen)
    scheduler.step()
    am.step(*batch)
    assert all(torch.equal(model.state_dict()[name], after[name]) for name in after)


@pytest.mark.parametrize("largest", [1e-3, 1e3])
def test_gradients_of_all_blocks_are_clipped_together(largest):
    torch.manual_seed(0)
    model, batch = plain().double(), (torch.randn(8, 6, dtype=F64), torch.randint(3, (8,)))
    rules = [altmin.CoActivationMemory(), altmin.CoActivationMemory(clip_norm=largest)]
    found = []
    for rule in rules:
        am = altmin.AltMin(copy.deepcopy(model), weights=rule)
        am.step(*batch)
        found.append([M for state in am.updates.states.values() for M in state["exp_avg"]])
    norm = torch.cat([M.flatten() for M in found[0]]).norm() / 0.1  # of a first momentum, with beta 0.9
    expected = [M * min(1.0, largest / float(norm)) for M in found[0]]
    torch.testing.assert_close(found[1], expected, rtol=1e-4, atol=0.0)


def test_frozen_parameters_do_not_count_when_gradients_are_clipped():
    torch.manual_seed(0)
    net, batch = nn.Linear(6, 3).double(), (torch.randn(8, 6, dtype=F64), torch.randint(3, (8,)))
    net.bias.requires_grad_(False)
    F.cross_entropy(net(batch[0]), batch[1]).backward()
    grad, largest = net.weight.grad.clone(), 1e-3
    am = altmin.AltMin(nn.Sequential(net), weights=altmin.CoActivationMemory(clip_norm=largest))
    am.step(*batch)
    mean = am.updates.states[0]["exp_avg"][0]
    torch.testing.assert_close(mean, 0.1 * grad * largest / grad.norm(), rtol=1e-4, atol=0.0)


def friedman(n: int, scale: float) -> tuple[Tensor, Tensor]:
    x = torch.rand(n, 8)
    y = 10 * torch.sin(math.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return torch.cat([x - 0.5, x[:, :1] - 0.5, torch.ones(n, 1)], 1), scale * (y - y.mean()).unsqueeze(1) / y.std()


@pytest.mark.parametrize("batch", [1, 50])
@pytest.mark.parametrize("inputs, targets", [(1.0, 1.0), (1e-4, 1.0), (1e4, 1.0), (1.0, 1e4)])
def test_no_scale_of_inputs_or_targets_makes_it_diverge(inputs, targets, batch):
    """Duplicated and constant features are among them. An entry of a step has a length that no scale changes."""
    torch.manual_seed(0)
    n, epochs = (400, 10) if batch > 1 else (150, 2)
    x, y = friedman(n, targets)
    model = altmin.models.mlp(10, (20, 20), 1)
    am = altmin.AltMin(model, loss=nn.MSELoss(), weights=altmin.CoActivationMemory(0.01 if batch > 1 else 0.002))
    split = torch.arange(n).split(batch)
    losses = [float(am.step(inputs * x[rows], y[rows]).loss) for _ in range(epochs) for rows in split]
    first, last = np.mean(losses[: len(split)]), np.mean(losses[-len(split) :])
    assert last <= 1.02 * first
    assert (inputs, targets, batch) != (1.0, 1.0, 50) or last < 0.35 * first


@pytest.mark.parametrize("inputs, targets", [(1e-10, 1.0), (1e-6, 1e4), (1e6, 1e4), (1e8, 1.0), (1.0, 1e8)])
@pytest.mark.parametrize("width, bias", [(8, False), (50, False), (50, True)])
def test_no_power_of_a_size_leaves_the_range_of_float32(width, bias, inputs, targets):
    torch.manual_seed(0)
    layers = [nn.Linear(6, width, bias), nn.ReLU(), nn.Linear(width, width, bias), nn.ReLU(), nn.Linear(width, 1, bias)]
    am = altmin.AltMin(nn.Sequential(*layers), loss=nn.MSELoss(), weights=altmin.CoActivationMemory())
    x = torch.randn(20, 6)
    for row in x.split(1):  # a step that is not finite is refused with `Diverged`
        am.step(inputs * row, targets * row[:, :1])


def test_inputs_that_are_zero_at_every_place_the_memory_sees_still_give_a_step():
    for channels in (1, 40):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv1d(channels, 3, 1, bias=False), nn.Flatten(), nn.Linear(3 * 64, 2))
        x = torch.zeros(2, channels, 64)
        x[:, :, 1] = 1.0  # every fourth place is seen
        am = altmin.AltMin(net, weights=altmin.CoActivationMemory())
        before = net[0].weight.detach().clone()
        am.step(x, torch.tensor([0, 1]))
        assert not torch.equal(net[0].weight, before)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"lr": -1}, "lr"),
        ({"beta": 1.0}, "beta of CoActivationMemory lies between 0 and 1, and is not 1"),
        ({"forget": 1.5}, "forget of CoActivationMemory"),
        ({"damping": 0.0}, "damping"),
        ({"rank": 0}, "rank"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"every": 0}, "every"),
        ({"rows": 0.5}, "rows"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        altmin.CoActivationMemory(**options)
