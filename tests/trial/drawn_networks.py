"""Networks, methods and mini-batches in float64 for the trial of runners, drawn at random: with batch norm, dropout,
attention, branches, embeddings, weights that are used twice and frozen ones, and some that ranks must refuse."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import altmin

WIDTH, STEPS, CLASSES = 6, 4, 3


class Branch(nn.Module):
    """x + f(x), which altmin opens, or as one module (whole) that goes through autograd."""

    def __init__(self, inner: nn.Module, whole: bool):
        super().__init__()
        self.inner, self.whole = inner, whole

    def forward(self, x: Tensor) -> Tensor:
        if self.whole and len(x) > 10**6:
            return x
        return x + self.inner(x)


class Twice(nn.Module):
    """One weight used twice in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.layer(x)), self.layer.weight.T) + x


class Heads(nn.Module):
    """Attention as people write it."""

    def __init__(self, dropout: float):
        super().__init__()
        self.qkv, self.out, self.dropout = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.dropout(self.out(y.transpose(1, 2).flatten(2)))


class Called(nn.Module):
    """A function after a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.layer, self.function = nn.Linear(WIDTH, WIDTH), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


class Running(nn.Module):
    """Keeps a mean of its own of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().flatten(0, -2).mean(0), 0.1)
        return self.layer(x - self.mean)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


@dataclass
class Network:
    """A model, and what is true of it. random: whether it draws numbers in training. divisible: whether ranks may not
    refuse it. mixes: whether it has batch norm, whose statistics are those of a part."""

    model: nn.Module
    shape: tuple[int, ...]
    tokens: int = 0
    random: bool = False
    divisible: bool = True
    mixes: bool = False
    words: list[str] = field(default_factory=list)


class Drawing:
    """Draws the layers of a network."""

    def __init__(self, r: Random):
        self.r, self.layers, self.words = r, list[nn.Module](), list[str]()
        self.random = self.mixes = False
        self.divisible = True

    def add(self, name: str, layer: nn.Module) -> None:
        self.words.append(name)
        self.layers.append(layer)

    def norm(self, images: bool = False) -> nn.Module:
        r = self.r
        self.mixes = True
        kind = nn.BatchNorm2d if images else nn.BatchNorm1d
        how = {"affine": r.random() < 0.7, "momentum": r.choice((0.1, None)), "track_running_stats": r.random() < 0.8}
        return kind(WIDTH, **how)

    def dropout(self, kind: type[Any] = nn.Dropout) -> nn.Module:
        self.random = True
        return kind(self.r.choice((0.2, 0.5)))

    def inner(self) -> nn.Module:
        """A part for a branch, over vectors."""
        r = self.r
        layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH), r.choice((nn.Tanh, nn.GELU, nn.Softplus))()]
        if r.random() < 0.3:
            layers.insert(1, self.norm())
        if r.random() < 0.3:
            layers.append(self.dropout())
        return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))

    def vectors(self) -> None:
        r = self.r
        for _ in range(r.randint(1, 3)):
            kind = r.choice(("linear", "linear", "batch norm", "dropout", "layer norm", "branch", "twice", "prelu"))
            if kind == "linear":
                self.add(kind, nn.Linear(WIDTH, WIDTH, bias=r.random() < 0.7))
                self.add("", r.choice((nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU))())
            elif kind == "branch":
                whole = r.random() < 0.5
                self.add(f"{'whole ' if whole else ''}branch", Branch(self.inner(), whole))
            else:
                made = {
                    "batch norm": self.norm,
                    "dropout": self.dropout,
                    "layer norm": lambda: nn.LayerNorm(WIDTH),
                    "twice": Twice,
                    "prelu": nn.PReLU,
                }
                self.add(kind, made[kind]())

    def sequences(self) -> None:
        r = self.r
        for _ in range(r.randint(1, 2)):
            kind = r.choice(("linear", "heads", "encoder", "layer norm", "dropout", "branch"))
            dropout = 0.3 if r.random() < 0.3 else 0.0
            if kind == "linear":
                self.add(kind, nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()))
            elif kind == "branch":
                self.add(kind, Branch(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()), r.random() < 0.5))
            elif kind == "dropout":
                self.add(kind, self.dropout(r.choice((nn.Dropout, nn.Dropout1d))))
            elif kind == "layer norm":
                self.add(kind, nn.LayerNorm(WIDTH))
            elif kind == "heads":
                self.random |= dropout > 0
                self.add(f"heads {dropout}", Heads(dropout))
            else:
                self.random |= dropout > 0
                self.divisible &= not dropout  # it draws in an order in which samples alternate
                layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=dropout, batch_first=True)
                if r.random() < 0.5:
                    layer.self_attn.dropout = 0.0
                self.add(f"encoder {dropout}", layer)

    def images(self) -> None:
        r = self.r
        self.add("convolution", nn.Conv2d(2, WIDTH, 3, padding=1))
        if r.random() < 0.5:
            self.add("batch norm", self.norm(images=True))
        self.add("", r.choice((nn.ReLU, nn.Tanh))())
        if r.random() < 0.4:
            self.add("dropout of channels", self.dropout(nn.Dropout2d))
        self.add("", nn.AvgPool2d(2) if r.random() < 0.5 else nn.MaxPool2d(2))

    def odd(self, sequences: bool) -> None:
        """A part that ranks must refuse, since one process would compute something else."""
        kinds: dict[str, Callable[[], nn.Module]] = {
            "the mean of samples": lambda: Called(lambda x: x - x.mean(0)),
            "a running mean": Running,
            "random paths": lambda: Called(
                lambda x: x * (torch.rand(len(x)) > 0.5).to(x).view(-1, *[1] * (x.ndim - 1))
            ),
            "noise": lambda: Called(lambda x: x + 0.1 * torch.randn(x.shape, dtype=x.dtype)),
            "the largest sample": lambda: Called(lambda x: x / (1 + x.abs().amax(0))),
        }
        if sequences:
            kinds["an encoder over samples"] = lambda: nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0)
            kinds["transposed dropout"] = lambda: Called(lambda x: F.dropout(x.transpose(0, 1), 0.5).transpose(0, 1))
            kinds["normalised instances"] = lambda: nn.InstanceNorm1d(STEPS, track_running_stats=True)
        name = self.r.choice(sorted(kinds))
        self.random |= name in ("random paths", "noise", "transposed dropout")
        self.divisible = False
        self.add(name, kinds[name]())


def draw_network(r: Random) -> Network:
    d, kind = Drawing(r), r.choice(("vectors", "vectors", "sequences", "tokens", "images"))
    shape: tuple[int, ...] = {"vectors": (WIDTH,), "images": (2, 4, 4), "tokens": (STEPS,)}.get(kind, (STEPS, WIDTH))
    if kind == "vectors":
        d.add("linear", nn.Linear(WIDTH, WIDTH))
        d.vectors()
    elif kind == "images":
        d.images()
        d.add("", nn.Flatten())
        d.add("linear", nn.Linear(4 * WIDTH, WIDTH))
        d.vectors()
    else:
        first = nn.Embedding(7, WIDTH) if kind == "tokens" else nn.Linear(WIDTH, WIDTH)
        d.add("embedding" if kind == "tokens" else "linear", first)
        d.sequences()
    sequences = kind in ("tokens", "sequences")
    if r.random() < 0.15:
        d.odd(sequences)
    if sequences:
        d.add("", Pooled() if r.random() < 0.5 else nn.Sequential(nn.Flatten(), nn.Linear(STEPS * WIDTH, WIDTH)))
    d.add("linear", nn.Linear(WIDTH, CLASSES))
    model = nn.Sequential(*d.layers).double()
    if r.random() < 0.15:
        next(model.parameters()).requires_grad_(False)
        d.words.append("first parameter frozen")
    if r.random() < 0.1:
        model.eval()
        d.words.append("in evaluation")
    words = [kind, *filter(None, d.words)]
    return Network(model, shape, 7 * (kind == "tokens"), d.random, d.divisible, d.mixes, words)


@dataclass
class Case:
    """What is to be trained: method(model) makes a method of a copy of the model, and batches are for it. in_parts:
    whether a mini-batch may be given in parts."""

    network: Network
    method: Callable[[nn.Module], Any]
    batches: list[tuple[Tensor, Tensor]]
    words: str
    in_parts: bool


CODES: list[tuple[str, Callable[[], Any]]] = [
    ("share 0.1", lambda: altmin.GradientCodes()),
    ("share 0", lambda: altmin.GradientCodes(share=0.0)),
    ("share 0.5", lambda: altmin.GradientCodes(share=0.5)),
    ("weights first", lambda: altmin.GradientCodes(order="weights-first")),
    ("two steps", lambda: altmin.GradientCodes(steps=2, momentum=0.3)),
    ("a fixed step", lambda: altmin.GradientCodes(lr=0.01)),
]
WEIGHTS: list[tuple[str, Callable[[], Any]]] = [
    ("SGD", lambda: altmin.LocalSGD(2**-4)),
    ("SGD with decay", lambda: altmin.LocalSGD(2**-4, momentum=0.0, weight_decay=0.1)),
    ("Adam", lambda: altmin.LocalAdam(2**-7, eps=0.01)),
    ("Adam, l1", lambda: altmin.LocalAdam(2**-7, eps=0.01, l1=2**-9)),
    ("memory", lambda: altmin.FittedMemory(rest=altmin.LocalSGD(2**-4))),
]
LOSSES: list[tuple[str, Callable[[], Any]]] = [
    ("cross-entropy", nn.CrossEntropyLoss),
    ("label smoothing", lambda: nn.CrossEntropyLoss(label_smoothing=0.1)),
    ("class weights", lambda: nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))),
    ("a sum", lambda: nn.CrossEntropyLoss(reduction="sum")),
    ("ignored labels", lambda: nn.CrossEntropyLoss(ignore_index=1)),
    ("squared error", nn.MSELoss),
]


def draw_case(r: Random) -> Case:
    """The model's weights and the batches are drawn from torch's generator."""
    network = draw_network(r)
    (codes, make_codes), (weights, make_weights), (loss, make_loss) = map(r.choice, (CODES, WEIGHTS, LOSSES))
    in_parts = r.random() < 0.85
    if not in_parts:
        words = f"sgd, {loss}"

        def method(model: nn.Module) -> Any:
            return altmin.methods.create("sgd", model, lr=0.05, loss=make_loss())
    else:
        words = f"codes: {codes}, weights: {weights}, {loss}"

        def method(model: nn.Module) -> Any:
            return altmin.AltMin(model, loss=make_loss(), codes=make_codes(), weights=make_weights())

    batches = []
    for _ in range(3):
        n = r.choice((4, 5, 8, 9, 9)) if network.mixes or r.random() < 0.8 else 1
        x = torch.randint(7, (n, *network.shape)) if network.tokens else torch.randn(n, *network.shape).double()
        y = torch.randn(n, CLASSES).double() if loss == "squared error" else torch.randint(CLASSES, (n,))
        batches.append((x, y))
    sizes = "+".join(str(len(x)) for x, _ in batches)
    return Case(network, method, batches, f"{', '.join(network.words)}; {words}; batches of {sizes}", in_parts)
