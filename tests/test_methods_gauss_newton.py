"""The Gauss-Newton step, against the dense minimum of its quadratic model in double precision."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev

import altmin
from altmin.methods.gauss_newton import LARGEST, GaussNewton

START, FORGET, FLOOR = 0.2, 0.97, 0.01


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def convolutional() -> nn.Sequential:
    first, second = nn.Conv2d(1, 2, 3, stride=2), nn.Conv2d(2, 3, 2, bias=False)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))


CASES: dict[str, tuple[Any, Any]] = {
    "mlp": (mlp, lambda n: torch.randn(n, 4)),
    "convolutions": (convolutional, lambda n: torch.randn(n, 1, 7, 7)),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 3)),
        lambda n: torch.randn(n, 2, 4),
    ),
}


def made(name: str, **options: Any) -> GaussNewton:
    torch.manual_seed(0)
    model = CASES[name][0]().double()
    return GaussNewton(model, **{"start": START, "forget": FORGET, "floor": FLOOR, **options})


def samples(name: str, n: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    x = CASES[name][1](n)
    return (x.double() if x.is_floating_point() else x), torch.randint(3, (n,))


def blocks(method: GaussNewton) -> list[list[str]]:
    """The names of the parameters that share a P, in the order of `method.P`."""
    by_id = {id(p): name for name, p in method.model.named_parameters()}
    return [[by_id[id(p)] for p in method._params(place)] for place in method.places]


def expected(method: GaussNewton, x: Tensor, y: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """theta + (P^-1 + sum_i w_i J_i^T H_i J_i)^-1 sum_i w_i J_i^T r_i with dense matrices of autograd, H halfway to
    the target; P has for each output its matrix."""
    model, theta = method.model, {name: p.detach() for name, p in method.model.named_parameters()}
    names = [name for group in blocks(method) for name in group]
    prior, columns = [], []
    start = 0
    for group, P in zip(blocks(method), method.P, strict=True):
        outputs, width = theta[group[0]].shape[0], theta[group[0]][0].numel()
        size = sum(theta[name].numel() for name in group)
        prior.append(torch.block_diag(*[torch.linalg.inv(P)] * outputs))  # of each row of (weight, bias) together
        bias = [outputs * width + o for o in range(outputs)] if len(group) > 1 else []
        rows = [[*range(o * width, (o + 1) * width), *bias[o : o + 1]] for o in range(outputs)]
        columns.append(start + torch.tensor([j for row in rows for j in row]))
        start += size
    order = torch.cat(columns)  # where each coordinate of the prior is in the flat parameters

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output[None], target[None])

    total = torch.block_diag(*prior)
    pull = torch.zeros(len(order), dtype=torch.float64)
    for x_i, y_i, w in zip(x, y, weights, strict=True):

        def output(parameters: dict[str, Tensor], x_i: Tensor = x_i) -> Tensor:
            return functional_call(model, parameters, (x_i[None],))[0]

        found = jacrev(output)(theta)
        J = torch.cat([found[name].flatten(1) for name in names], 1)[:, order]
        o = output(theta)
        half = (o.softmax(0) + nn.functional.one_hot(y_i, 3)) / 2
        H = hessian(loss)(half.log(), y_i)  # of the output with these probabilities
        r = -torch.func.grad(loss)(o, y_i)
        total = total + w * J.T @ H @ J
        pull = pull + w * J.T @ r
    flat = torch.cat([theta[name].flatten() for name in names])
    flat[order] = flat[order] + torch.linalg.solve(total, pull)
    parts = flat.split([theta[name].numel() for name in names])
    return {name: part.view_as(theta[name]) for name, part in zip(names, parts, strict=True)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [1, 3])
def test_the_step_is_the_minimum_of_the_quadratic_model(name: str, n: int) -> None:
    method = made(name)
    for seed in (n, n + 10):  # the second with another P
        x, y = samples(name, seed)
        x, y, weights = x[:n], y[:n], torch.tensor([1.0, 0.5, 2.0])[:n].double()
        wanted = expected(method, x, y, weights)
        method.step(x, y, sample_weight=weights)
        for key, p in method.model.named_parameters():
            torch.testing.assert_close(p.detach(), wanted[key], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["mlp", "convolutions"])
@pytest.mark.parametrize("n", [1, 4, 40])
def test_the_memory_is_the_inverse_of_its_definition(name: str, n: int) -> None:
    """Of the first layer, with f from autograd's Jacobians; with 40 samples there are more rows than inputs."""
    method = made(name, walk=1e-3)
    x, y = samples(name, n)
    first = method.model[0]
    model, P = method.model, method.P[0]
    A = FORGET * torch.linalg.inv(P)
    for x_i, y_i in zip(x, y, strict=True):
        z = first(x_i[None]).detach()
        J = jacrev(lambda z: model[1:](z)[0])(z)
        p = (model(x_i[None])[0].softmax(0).detach() + nn.functional.one_hot(y_i, 3)) / 2
        H = torch.diag(p) - torch.outer(p, p)
        J = J.reshape(3, first.weight.shape[0], -1).detach()  # outputs of the net, of the layer, places
        f = torch.einsum("kom,kh,hom->m", J, H, J) / J.shape[1]
        places = J.shape[-1]
        a = x_i[None] if name == "mlp" else nn.functional.unfold(x_i[None], 3, stride=2)[0].T
        a = nn.functional.pad(a, (0, 1), value=1.0)
        A = A + (a * f.clamp_min(FLOOR / places)[:, None]).T @ a
    wanted = torch.linalg.inv(A) + 1e-3 * torch.eye(len(A))
    wanted = wanted * min(1.0, START * len(A) / float(wanted.trace()))
    method.step(x, y)
    torch.testing.assert_close(method.P[0], wanted, rtol=1e-8, atol=1e-12)


def test_samples_of_one_step_are_weighted_as_if_repeated() -> None:
    once, twice = made("mlp"), made("mlp")
    x, y = samples("mlp", 2)
    once.step(x, y, sample_weight=torch.tensor([2.0, 1.0]).double())
    twice.step(x[[0, 0, 1]], y[[0, 0, 1]])
    for p, q in zip(once.model.parameters(), twice.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_of_a_squared_error_a_linear_model_is_kalmans_filter() -> None:
    """W <- W + e (P a)^T / (a^T P a + v), with v the running mean of squared errors before this one."""
    torch.manual_seed(0)
    method = GaussNewton(nn.Sequential(nn.Linear(3, 2)).double(), nn.MSELoss(), start=0.5, floor=0.0)
    layer, P, v = method.model[0], 0.5 * torch.eye(4).double(), 1.0
    W = torch.cat([layer.weight, layer.bias[:, None]], 1).detach()
    for _ in range(5):
        x, y = torch.randn(1, 3).double(), 3 * torch.randn(1, 2).double()
        a = torch.cat([x[0], torch.ones(1).double()])
        e = y[0] - W @ a
        W = W + torch.outer(e, P @ a) / (a @ P @ a + v)
        P = torch.linalg.inv(0.999 * torch.linalg.inv(P) + torch.outer(a, a) / v)
        P = P * min(1.0, 2.0 / float(P.trace()))
        v = 0.99 * v + 0.01 * float(e.square().mean())
        method.step(x, y)
        torch.testing.assert_close(torch.cat([layer.weight, layer.bias[:, None]], 1).detach(), W)
        torch.testing.assert_close(method.P[0], P)


def test_single_precision_follows_double_over_a_long_stream() -> None:
    torch.manual_seed(0)
    double, single = (
        GaussNewton(nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 2)).to(kind))
        for kind in (torch.float64, torch.float32)
    )
    single.model.load_state_dict(double.model.state_dict())
    right = 0
    for t in range(1500):
        x = torch.randn(1, 4).double()
        y = (x[:, 0] * x[:, 1] > 0).long()
        right += int(double.model(x).argmax() == y) if t >= 500 else 0
        double.step(x, y)
        single.step(x.float(), y)
    assert right / 1000 > 0.8
    for p, q in zip(double.model.parameters(), single.model.parameters(), strict=True):
        torch.testing.assert_close(p.float(), q, rtol=0.05, atol=0.05)


def test_what_it_cannot_take_is_refused_and_changes_nothing() -> None:
    for layer in (nn.Dropout(), nn.BatchNorm1d(5, affine=False)):
        model = nn.Sequential(nn.Linear(4, 5), layer, nn.Linear(5, 3))
        with pytest.raises(ValueError, match="in training"):
            GaussNewton(model).step(torch.randn(2, 4), torch.tensor([0, 1]))
        GaussNewton(model.eval()).step(torch.randn(2, 4), torch.tensor([0, 1]))
    method = GaussNewton(mlp())
    before = [p.clone() for p in method.model.parameters()]
    with pytest.raises(ValueError):
        method.step(torch.randn(LARGEST, 4), torch.zeros(LARGEST, dtype=torch.int64))
    with pytest.raises(ValueError):
        method.step(torch.full((1, 4), torch.nan), torch.tensor([0]))
    assert all(torch.equal(p, q) for p, q in zip(before, method.model.parameters(), strict=True))
    linear = GaussNewton(nn.Sequential(nn.Linear(4, 3)))
    nn.init.constant_(linear.model[0].weight, 3e38)
    weight = linear.model[0].weight.detach().clone()
    with pytest.raises(altmin.Diverged):
        linear.step(torch.full((1, 4), 10.0), torch.tensor([0]))
    assert torch.equal(weight, linear.model[0].weight)
    with pytest.raises(ValueError, match="LayerNorm"):
        GaussNewton(nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)))
    for wrong in ({"start": 0.0}, {"forget": 1.5}, {"floor": -1.0}, {"walk": float("nan")}):
        with pytest.raises(ValueError):
            GaussNewton(mlp(), **wrong)


@pytest.mark.parametrize("own", ["an ignored class", "soft targets"])
def test_the_curvature_is_halfway_to_the_target_in_whatever_form_that_is_given(own: str) -> None:
    """Labels among which one may be ignored, as they also come on a GPU, and rows of probabilities."""
    labels, other = made("mlp"), made("mlp", loss=nn.CrossEntropyLoss(ignore_index=2) if own[0] == "a" else None)
    for n in (3, 20):
        x, y = samples("mlp", n)
        y = y.clamp_max(1)
        labels.step(x, y)
        other.step(x, nn.functional.one_hot(y, 3).double() if own[0] == "s" else y)
        torch.testing.assert_close([*other.model.parameters()], [*labels.model.parameters()])
        torch.testing.assert_close(other.P, labels.P)


def test_an_ignored_sample_changes_neither_weights_nor_curvature_of_the_others() -> None:
    with_ignored, alone = (made("mlp", loss=nn.CrossEntropyLoss(ignore_index=-1), floor=0.0) for _ in range(2))
    x, y = samples("mlp", 6)
    y[4:] = -1
    with_ignored.step(x, y)
    scale = torch.full((4,), 6 / 4, dtype=torch.float64)  # the mean over those that count, times all samples
    alone.step(x[:4], y[:4], sample_weight=scale)
    torch.testing.assert_close([*with_ignored.model.parameters()], [*alone.model.parameters()])
