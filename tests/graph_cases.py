"""Networks that are no chains of layers, in float64, and the comparison of a step with backprop."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import altmin

F64 = torch.float64


def as_backprop(
    model: nn.Module,
    x: Any,
    y: Tensor,
    loss: Any = F.cross_entropy,
    given: Any = None,
    atol: float = 1e-8,
    **options: Any,
) -> Any:
    """Loss, gradients and buffers of a step in which codes stay are those of autograd on a copy of the model. given:
    the batch in another form. Returns the trainer."""
    alone = copy.deepcopy(model)
    value = loss(alone(*x) if isinstance(x, tuple) else alone(x), y)
    wanted = torch.autograd.grad(value, list(alone.parameters()), allow_unused=True, materialize_grads=True)
    codes, weights = altmin.GradientCodes(share=1e-9), altmin.LocalSGD(1.0, momentum=0.0)
    am = altmin.AltMin(model, loss, codes, weights, **options)
    metrics = am.step(x if given is None else given, y)
    assert float(metrics.loss) == pytest.approx(float(value.detach()), rel=1e-12)
    for ours, theirs, g in zip(model.parameters(), alone.parameters(), wanted, strict=True):
        torch.testing.assert_close(theirs - ours, g, rtol=1e-5, atol=atol)
    for ours, theirs in zip(model.buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    return am


class Net(nn.Module):
    """A layer, what `between` does after it, and another."""

    def __init__(self, between: Callable[..., Any] = lambda net, h: h) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.count, self.seen, self.between, self.relu = 0, [], between, nn.ReLU(inplace=True)
        self.table, self.embed = nn.Parameter(torch.randn(7, 4)), nn.Embedding(7, 4)
        self.scale, self.norm = nn.Parameter(torch.randn(4)), nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.between(self, self.a(x))))


class Plain(nn.Module):
    """Layers and functions one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2 = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(8, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = torch.tanh(self.conv2(x))
        x = x.view(x.size(0), -1)
        return self.fc3(F.gelu(self.fc2(self.fc1(x).relu()), approximate="tanh"))


def sequential(model: Plain) -> nn.Sequential:
    """The layers of a `Plain`, written as a chain."""
    m = model
    return nn.Sequential(
        *(m.conv1, m.norm, nn.ReLU(), nn.MaxPool2d(2), m.conv2, nn.Tanh(), nn.Flatten()),
        *(m.fc1, nn.ReLU(), m.fc2, nn.GELU("tanh"), m.fc3),
    )


class Basic(nn.Module):
    """A residual block of two convolutions, as in a ResNet."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.short = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += self.short(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.layer1, self.layer2 = nn.Sequential(Basic(3, 3), Basic(3, 3)), nn.Sequential(Basic(3, 4))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        return self.fc(torch.flatten(self.pool(self.layer2(self.layer1(x))), 1))


class SharedInput(nn.Module):
    """The input feeds two branches, and one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.shift = nn.Parameter(torch.randn(4))
        self.register_buffer("scale", torch.rand(4) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x)) * self.b(x) + self.shift
        h = self.c(h) * self.scale
        return self.d(F.silu(h))


class Attention(nn.Module):
    def __init__(self, width: int, context: int):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(context, context).tril())

    def forward(self, x: Tensor) -> Tensor:
        samples, steps, width = x.shape
        q, k, v = self.qkv(x).view(samples, steps, 3, width).unbind(2)
        scores = (q @ k.mT / width**0.5).masked_fill(self.mask[:steps, :steps] == 0, -torch.inf)
        return self.out(scores.softmax(-1) @ v)


class TransformerBlock(nn.Module):
    def __init__(self, width: int, context: int):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, context)
        self.norm2, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.drop(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    """Pre-norm, causal, over tokens; positions are made in the forward."""

    def __init__(self, tokens: int = 7, width: int = 6, context: int = 5):
        super().__init__()
        self.context = context
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([TransformerBlock(width, context) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        steps = x.shape[1]
        assert steps <= self.context, "too long"
        x = self.tokens(x) + self.positions(torch.arange(steps, device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Sized(nn.Module):
    """Sizes, assertions, optional arguments, numbers made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor, scale: float = 2.0, mask: Tensor | None = None, *rest: Tensor) -> Tensor:
        assert x.shape[1] == 4, "four features"
        if mask is not None:
            x = x * mask
        return self.layer(scale * x + torch.arange(x.size(1), dtype=x.dtype) - torch.ones(4, dtype=x.dtype))


class Masked(nn.Module):
    """A transformer that hands a padding mask of its tokens to its layers, and uses sizes of its input to the end."""

    class Layer(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.norm2, self.gate, self.up = nn.LayerNorm(width), nn.Linear(width, 5), nn.Linear(width, 5)
            self.down = nn.Linear(5, width)

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(7, 4), nn.Parameter(torch.randn(1, 9, 4))
        self.layers = nn.ModuleList([self.Layer(4), self.Layer(4)])
        self.head = nn.Linear(4, 3)
        self.register_buffer("causal", torch.ones(9, 9, dtype=torch.bool).tril())

    def forward(self, tokens: Tensor) -> Tensor:
        samples, steps = tokens.shape
        there = tokens.ne(0)
        mask = there[:, None, :] & self.causal[:steps, :steps]
        x = self.tokens(tokens) + self.positions[:, :steps]
        x = self.layers[1](self.layers[0](x, mask), mask=mask)
        weight = there.unsqueeze(-1).to(x.dtype)
        return self.head((x * weight).sum(1) / weight.sum(1)).view(samples, 3)


class Reversible(nn.Module):
    """Two streams by turns, both halves of one layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.f, self.g = nn.ModuleList([nn.Linear(4, 4) for _ in "12"]), nn.ModuleList([nn.Linear(4, 4) for _ in "12"])
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.chunk(self.first(x), 2, dim=1)
        for f, g in zip(self.f, self.g, strict=True):
            a = a - torch.sin(f(b)) / (1 + b * b)
            b = torch.add(b, g(a), alpha=0.5)
        return self.last(torch.cat([a, b], 1))


def per_token(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), y.flatten())


class Case(NamedTuple):
    """A model, a batch, the loss, the names of what each block holds, and a coarser cut."""

    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Any
    blocks: list[str]
    at: list[str]

    def build(self, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
        torch.manual_seed(seed)
        return self.make().double(), *self.batch()


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 1, 8, 8, dtype=F64), torch.randint(3, (6,))


def rows() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 5, dtype=F64), torch.randint(3, (6,))


def sentences() -> tuple[Tensor, Tensor]:
    return torch.randint(7, (6, 5)), torch.randint(7, (6, 5))


def padded() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(7, (6, 5))
    tokens[:, 0] = 1
    return tokens, torch.randint(3, (6,))


ENTROPY = nn.CrossEntropyLoss()
CASES = {
    "plain": Case(
        *(Plain, images, ENTROPY),
        [
            *("Conv2d, BatchNorm2d", "MaxPool2d, ReLU, Conv2d", "Tanh, Flatten, Linear", "ReLU, Linear"),
            "GELU, Linear",
        ],
        ["conv2", "fc2"],
    ),
    "residual": Case(
        *(ResNet, images, ENTROPY),
        ["Conv2d, BatchNorm2d", "ReLU, Basic", "Basic", "Basic", "AdaptiveAvgPool2d, Flatten, Linear"],
        ["layer1.0", "layer2"],
    ),
    "shared input": Case(
        *(SharedInput, rows, ENTROPY),
        ["(Linear, tanh, Linear, mul)", "(add)", "Linear", "(mul), SiLU, Linear"],
        ["c"],
    ),
    "transformer": Case(
        *(Transformer, sentences, per_token),
        [
            "(Embedding, arange, Embedding, add)",
            *("(LayerNorm, Attention, add)", "(LayerNorm, Sequential, Dropout, add)"),
            *("(LayerNorm, Attention, add)", "(LayerNorm, Sequential, Dropout, add), LayerNorm", "Linear"),
        ],
        ["blocks.0", "norm"],
    ),
    "masked": Case(
        *(Masked, padded, ENTROPY),
        ["(ne, and_, Embedding, add, LayerNorm, Linear, ..., view)"],
        ["layers.0", "layers.1.out"],
    ),
    "reversible": Case(
        *(Reversible, rows, ENTROPY),
        ["Linear", "(chunk, Linear, sin, mul, add, truediv, ..., cat)", "Linear"],
        ["first", "f.1"],
    ),
}
