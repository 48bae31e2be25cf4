"""The methods as printed are Algorithms 1 to 3: each is held against a transcription of the pseudocode in float64, with
autograd for the derivatives, torch.optim for the steps and a loop over columns for the memory."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import altmin

F64 = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "as printed": {"code_lr": 0.3},
    "one step": {"code_lr": 1.0, "code_steps": 1, "momentum": 0.0},
    "large mu": {"code_lr": 0.1, "mu": 0.4, "increment": 0.05, "growth": 1.5, "maximum": 0.7},
    "sparse codes": {"code_lr": 0.3, "code_l1": 0.02},
    "means": {"code_lr": 2.0, "mean": True},
    "public code": {"code_lr": 2.0, "mean": True, "anchored": False},
    "no anchor": {"code_lr": 0.3, "anchored": False},
}


def mlp() -> nn.Sequential:
    torch.manual_seed(3)
    layers = nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)
    return nn.Sequential(*layers).double()


def cnn() -> nn.Sequential:
    torch.manual_seed(4)
    body = nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 2, 2), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(8, 3)).double()


def batch(seed: int, shape: tuple[int, ...], n: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, *shape, generator=generator, dtype=F64), torch.randint(3, (n,), generator=generator)


def blocks(model: nn.Sequential) -> list[nn.Sequential]:
    """What lies between two codes, and above the last: activations, then one layer with weights."""
    found, part = [], []
    for module in model:
        part.append(module)
        if any(True for _ in module.parameters()):
            found.append(nn.Sequential(*part))
            part = []
    assert not part
    return found


def update_codes(layers: list[nn.Sequential], x: Tensor, y: Tensor, mu: float, **given: Any) -> list[Tensor]:
    """encodeInput and updateCodes; returns c_1, ..., c_L."""
    options = {"code_steps": 5, "momentum": 0.9, "code_l1": 0.0, "mean": False, "anchored": True, **given}
    encoded = [x]
    for layer in layers[:-1]:
        encoded.append(layer(encoded[-1]).detach())
    codes = list(encoded)
    for l in range(len(layers) - 1, 0, -1):
        c = encoded[l].clone().requires_grad_()
        optimizer = torch.optim.SGD(
            [c], lr=options["code_lr"], momentum=options["momentum"], nesterov=options["momentum"] > 0
        )
        for _ in range(options["code_steps"]):
            output = layers[l](c)
            if options["mean"]:
                last = l == len(layers) - 1
                f = F.cross_entropy(output, y) / mu if last else F.mse_loss(output, codes[l + 1])
                home = F.mse_loss(c, encoded[l])
                threshold = options["code_l1"] / c.numel()
            else:
                last = l == len(layers) - 1
                above = F.cross_entropy(output, y, reduction="sum") if last else 0.0
                f = above if last else mu * (codes[l + 1] - output).square().sum()
                home = mu * (c - encoded[l]).square().sum()
                threshold = options["code_l1"]
            optimizer.zero_grad()
            (f + home if options["anchored"] else f).backward()
            optimizer.step()
            c.data = c.data.sign() * (c.data.abs() - options["code_lr"] * threshold).clamp_min(0)
        codes[l] = c.detach()
    return codes[1:]


def column_descent(W: Tensor, A: Tensor, B: Tensor, l1: float = 0.0) -> Tensor:
    """One pass over the columns of W of Tr(W^T W A) - 2 Tr(W^T B), each set to its best and then moved towards 0."""
    W = W.clone()
    for j in range(W.shape[1]):
        if A[j, j] > 0:
            W[:, j] += (B[:, j] - W @ A[:, j]) / A[j, j]
        W[:, j] = W[:, j].sign() * (W[:, j].abs() - l1).clamp_min(0)
    return W


class Naive:
    """Algorithm 1 on a copy of a model. optimizer: of the weights, None for the memory, with SGD on the last layer."""

    def __init__(
        self,
        model: nn.Sequential,
        optimizer: Callable[..., Any] | None,
        lr: float,
        sweeps: int,
        l1: float,
        **given: Any,
    ):
        self.model, self.layers = model, blocks(model)
        self.mu, self.maximum = given.pop("mu", 0.01), given.pop("maximum", 1.5)
        self.increment, self.growth = given.pop("increment", 0.0), given.pop("growth", 1.0)
        self.given, self.sweeps, self.l1 = given, sweeps, l1
        kinds = [optimizer or torch.optim.SGD] * len(self.layers)
        self.optimizers = [kind(layer.parameters(), lr=lr) for kind, layer in zip(kinds, self.layers, strict=True)]
        self.memory: list[Any] = None if optimizer else [[0.0, 0.0] for _ in self.layers[:-1]]

    def step(self, x: Tensor, y: Tensor) -> None:
        codes = update_codes(self.layers, x, y, self.mu, **self.given)
        for l, (layer, a) in enumerate(zip(self.layers, [x, *codes], strict=True)):
            if l == len(codes):
                loss = F.cross_entropy(layer(a), y)
            elif self.memory is None:
                square = (codes[l] - layer(a)).square()
                loss = square.mean() if self.given.get("mean") else self.mu * square.sum() / len(x)
            else:
                self._remember(l, layer, a, codes[l])
                continue
            self.optimizers[l].zero_grad()
            loss.backward()
            self.optimizers[l].step()
        self.mu = min(self.mu + self.increment, self.maximum)

    def _remember(self, l: int, layer: nn.Sequential, below: Tensor, code: Tensor) -> None:
        a = below
        for module in layer[:-1]:
            a = module(a)
        a = torch.cat([a, torch.ones(len(a), 1, dtype=F64)], 1)
        for t in range(len(a)):
            self.memory[l][0] = self.memory[l][0] + torch.outer(a[t], a[t])
            self.memory[l][1] = self.memory[l][1] + torch.outer(code[t], a[t])
        linear = layer[-1]
        W = torch.cat([linear.weight.data, linear.bias.data.unsqueeze(1)], 1)
        for _ in range(self.sweeps):
            W = column_descent(W, *self.memory[l], self.l1)
        linear.weight.data, linear.bias.data = W[:, :-1].clone(), W[:, -1].clone()

    def end_epoch(self) -> None:
        self.mu = min(self.mu * self.growth, self.maximum)


def held(model: nn.Sequential, name: str, naive: Naive, shape: tuple[int, ...], **options: Any) -> None:
    """Both train for two epochs of three batches, and have the same weights after each."""
    am = altmin.methods.create(name, model, **options)
    for i in range(6):
        naive.step(*batch(i, shape))
        am.step(*batch(i, shape))
        if i % 3 == 2:
            naive.end_epoch()
            am.end_epoch()
        for p, q in zip(model.parameters(), naive.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name, optimizer, lr", [("adam", torch.optim.Adam, 0.01), ("sgd", torch.optim.SGD, 0.3)])
@pytest.mark.parametrize("about", OPTIONS)
def test_weights_by_an_optimizer_are_the_pseudocode(about: str, name: str, optimizer: Any, lr: float) -> None:
    model, given = mlp(), OPTIONS[about]
    naive = Naive(copy.deepcopy(model), optimizer, lr, 0, 0.0, **given)
    held(model, f"am-{name}-printed", naive, (4,), lr=lr, **given)


@pytest.mark.parametrize(
    "about, sweeps, l1",
    [
        ("as printed", 1, 0.0),
        ("as printed", 2, 0.01),
        ("large mu", 3, 0.0),
        ("large mu", 1, 0.01),
        ("public code", 2, 0),
    ],
)
def test_am_mem_printed_is_the_pseudocode(about: str, sweeps: int, l1: float) -> None:
    model, given = mlp(), {**OPTIONS[about], "code_lr": 0.1}
    naive = Naive(copy.deepcopy(model), None, 0.2, sweeps, l1, **given)
    held(model, "am-mem-printed", naive, (4,), lr=0.2, sweeps=sweeps, l1=l1, **given)


@pytest.mark.parametrize("about", ["as printed", "public code"])
def test_convolutions_are_layers_like_any_other(about: str) -> None:
    model, given = cnn(), {**OPTIONS[about], "code_lr": 0.05}
    naive = Naive(copy.deepcopy(model), torch.optim.Adam, 0.01, 0, 0.0, **given)
    held(model, "am-adam-printed", naive, (1, 8, 8), lr=0.01, **given)


@pytest.mark.parametrize("name", ["am-adam", "am-mem"])
def test_offline_all_data_are_one_batch_whatever_its_parts(name: str) -> None:
    """An epoch in parts is a step on their union."""
    model, options = mlp(), {"lr": 0.05, "code_lr": 0.3}
    online, (x, y) = copy.deepcopy(model), batch(1, (4,), 10)
    whole = altmin.methods.create(f"{name}-printed", online, **options)
    parts = altmin.methods.create(f"{name}-offline-printed", model, **options)
    for _ in range(3):
        whole.step(x, y)
        for rows in (slice(0, 4), slice(4, 10)):
            before = [p.clone() for p in model.parameters()]
            parts.step(x[rows], y[rows])
            torch.testing.assert_close([*model.parameters()], before, rtol=0, atol=0)
        parts.end_epoch()
        torch.testing.assert_close([*model.parameters()], [*online.parameters()], rtol=1e-7, atol=1e-9)


# -- codes in time ----------------------------------------------------------------------------------------------------


def test_codes_in_time_are_moved_from_the_last_step_to_the_first() -> None:
    """Appendix B.1: z first, then every c_t with z_t and c_{t+1} where they have moved to; all weights by Adam on the
    sums of their terms over time."""
    torch.manual_seed(5)
    T, d, n, mu, lr, steps = 4, 3, 5, 0.3, 0.2, 5
    model = altmin.models.elman(d, T, outputs=3).double()
    recurrent, readout, head = (m for m in model if any(True for _ in m.parameters()))
    x, y = torch.randn(n, T, 1, dtype=F64), torch.randint(3, (n,))
    U, W, b = (getattr(recurrent, name).detach().clone() for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"))
    V, C = readout.weight.detach().clone(), head.weight.detach().clone()
    bias = head.bias.detach().clone() if head.bias is not None else torch.zeros(3, dtype=F64)
    h, encoded = torch.zeros(n, d, dtype=F64), []
    for t in range(T):
        encoded.append(x[:, t] @ U.T + h @ W.T + b)
        h = torch.tanh(encoded[t])
    z0 = torch.stack([torch.tanh(c) @ V.T for c in encoded], 1)

    def descend(start: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        c = start.clone().requires_grad_()
        optimizer = torch.optim.SGD([c], lr=lr, momentum=0.9, nesterov=True)
        for _ in range(steps):
            optimizer.zero_grad()
            f(c).backward()
            optimizer.step()
        return c.detach()

    def last(z: Tensor) -> Tensor:
        loss = F.cross_entropy(torch.relu(z).flatten(1) @ C.T + bias, y, reduction="sum")
        return loss + mu * (z - z0).square().sum()

    z, codes = descend(z0, last), list(encoded)
    for t in reversed(range(T)):

        def term(c: Tensor, t: int = t) -> Tensor:
            f = (z[:, t] - torch.tanh(c) @ V.T).square().sum() + (c - encoded[t]).square().sum()
            if t + 1 < T:
                f = f + (codes[t + 1] - x[:, t + 1] @ U.T - torch.tanh(c) @ W.T - b).square().sum()
            return mu * f

        codes[t] = descend(codes[t], term)
    leaves = [p.clone().requires_grad_() for p in (U, W, b, V, C)]
    U, W, b, V, C = leaves
    h = [torch.zeros(n, d, dtype=F64), *(torch.tanh(c) for c in codes)]
    f = F.cross_entropy(torch.relu(z).flatten(1) @ C.T + bias, y)
    for t in range(T):
        f = f + mu / n * (codes[t] - x[:, t] @ U.T - h[t] @ W.T - b).square().sum()
        f = f + mu / n * (z[:, t] - h[t + 1] @ V.T).square().sum()
    f.backward()
    am = altmin.methods.create("am-sgd-printed", model, lr=1.0, code_lr=lr, code_steps=steps, mu=mu)
    am.step(x, y)
    found = recurrent.weight_ih_l0, recurrent.weight_hh_l0, recurrent.bias_ih_l0, readout.weight, head.weight
    for p, leaf in zip(found, leaves, strict=True):
        torch.testing.assert_close(p, leaf - leaf.grad, rtol=1e-7, atol=1e-9)


def test_what_codes_in_time_cannot_be_printed_is_refused() -> None:
    net = altmin.models.elman(3, 4, outputs=3)
    with pytest.raises(ValueError):
        altmin.methods.create("am-adam-printed", net, mean=True)
    first, second = altmin.Recurrent(2, 3), altmin.Recurrent(3, 3)
    stacked = nn.Sequential(first, second, altmin.Readout(3, 1), nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(ValueError):
        altmin.methods.create("am-adam-printed", stacked)


# -- what the public code changes -------------------------------------------------------------------------------------


def test_a_loss_that_is_a_sum_is_refused_and_changes_nothing() -> None:
    model, (x, y) = mlp(), batch(0, (4,))
    before = [p.detach().clone() for p in model.parameters()]
    am = altmin.methods.create("am-adam-printed", model, loss=nn.CrossEntropyLoss(reduction="sum"))
    with pytest.raises(ValueError):
        am.step(x, y)
    for p, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, old)
