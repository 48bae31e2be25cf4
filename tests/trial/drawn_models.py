"""Models for the trial, drawn at random: chains of every kind of module, some of them wrong on purpose."""

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor, nn

import altmin


class Residual(nn.Module):
    """A module of the user's own, with parameters."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(torch.tanh(x))


class Normed(nn.Module):
    """A module of the user's own, with buffers."""

    def __init__(self, width: int):
        super().__init__()
        self.layer, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x))


class Gain(nn.Module):
    """One number as a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


class Squares(nn.Module):
    """A module of the user's own, without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x / (1 + x.abs())


class Pair(nn.Module):
    """Returns two tensors, which no chain can follow."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), x


class Constant(nn.Module):
    """An output that depends on no input."""

    def __init__(self, width: int):
        super().__init__()
        self.value = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.value.expand(len(x), -1)


@dataclass
class Drawn:
    """A model and what it takes. shape: of one sample. outputs: entries of its output. exact: an ordinary net, whose
    step without moving codes is backprop's. good: nothing is wrong with it. words: what was drawn."""

    model: nn.Module | None
    shape: tuple[int, ...]
    outputs: int
    dtype: torch.dtype = torch.float32
    exact: bool = True
    good: bool = True
    integers: int = 0
    recurrent: bool = False
    words: str = ""


ACTIVATIONS = (
    *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Hardtanh, nn.Identity),
    *(nn.Softsign, nn.LogSigmoid, nn.Hardswish, nn.ReLU6, nn.Mish, nn.Tanhshrink, Squares),
)


def draw_model(r: Random) -> Drawn:
    """A model with its weights, in float32 or float64, sometimes partly frozen, in evaluation mode, or wrong."""
    kind = r.choice(("vector", "vector", "vector", "image", "image", "time", "text"))
    drawn = {"vector": _vector, "image": _image, "time": _time, "text": _text}[kind](r)
    assert drawn.model is not None
    if r.random() < 0.4:
        drawn.dtype = torch.float64
        drawn.model.double()
    if r.random() < 0.1:
        drawn.model.eval()
    if r.random() < 0.1:
        next(drawn.model.parameters()).requires_grad_(False)
        drawn.exact = False
    drawn.words = f"{drawn.model!r}".replace("\n", "") + f" in {drawn.dtype}"
    if r.random() < 0.1:
        _spoil(r, drawn)
    return drawn


def _activation(r: Random, drawn: list[nn.Module]) -> bool:
    """Adds one; whether it has a derivative."""
    if r.random() < 0.15:
        kinds = (altmin.Sign(), altmin.Staircase(r.choice((2, 3, 5))), altmin.StraightThrough(altmin.Sign()))
        drawn.append(r.choice(kinds))
        return False
    kind = r.choice(ACTIVATIONS)
    inplace = kind in (nn.ReLU, nn.ELU, nn.LeakyReLU) and r.random() < 0.2
    drawn.append(kind(inplace=True) if inplace else kind())
    return True


def _layers(r: Random, width: int, outputs: int, modules: list[nn.Module]) -> bool:
    """Linear layers and what goes with them, down to the outputs; whether the net is ordinary."""
    exact = True
    for _ in range(r.choice((0, 1, 1, 2, 2, 3, 5))):
        after = r.randint(1, 6)
        modules.append(nn.Linear(width, after, bias=r.random() < 0.8))
        width = after
        if r.random() < 0.2:
            modules.append(nn.BatchNorm1d(width) if r.random() < 0.5 else nn.LayerNorm(width))
        exact &= _activation(r, modules)
        if r.random() < 0.1:
            modules.append(nn.Dropout(r.choice((0.0, 0.3, 1.0))))
            exact = False
        if r.random() < 0.2:
            modules.append(r.choice((Residual, Normed, lambda _: Gain(), lambda _: nn.PReLU()))(width))
        if r.random() < 0.1:
            modules.append(nn.Sequential(nn.Linear(width, width), nn.Sequential(nn.Tanh())))
    modules.append(nn.Linear(width, outputs, bias=r.random() < 0.8))
    if r.random() < 0.1:
        modules.append(r.choice((nn.Tanh(), nn.LogSoftmax(1), nn.BatchNorm1d(outputs), nn.ReLU())))
    return exact


def _vector(r: Random) -> Drawn:
    width, outputs, modules = r.randint(1, 6), r.randint(1, 5), list[nn.Module]()
    exact = _layers(r, width, outputs, modules)
    return Drawn(nn.Sequential(*modules), (width,), outputs, exact=exact)


def _image(r: Random) -> Drawn:
    channels, side = r.choice((1, 2)), r.choice((4, 6))
    after, size = r.randint(1, 3), r.choice((1, 3))
    mode = {"padding_mode": "circular"} if r.random() < 0.1 else {}
    padding = r.choice((size // 2, "same"))
    modules: list[nn.Module] = [nn.Conv2d(channels, after, size, padding=padding, bias=r.random() < 0.7, **mode)]
    if r.random() < 0.3:
        modules.append(nn.BatchNorm2d(after))
    exact = _activation(r, modules)
    if r.random() < 0.6:
        pools = (
            nn.MaxPool2d(2),
            nn.AvgPool2d(2),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.AdaptiveAvgPool2d(side // 2),
        )
        modules.append(r.choice(pools))
        left = side // 2
    else:
        left = side
    if r.random() < 0.2:
        modules.append(nn.Dropout2d(0.3))
        exact = False
    if r.random() < 0.2:
        modules += [nn.ConvTranspose2d(after, 2, 1), nn.GroupNorm(1, 2)]
        after = 2
    modules.append(nn.Flatten())
    outputs = r.randint(1, 4)
    exact &= _layers(r, after * left * left, outputs, modules)
    return Drawn(nn.Sequential(*modules), (channels, side, side), outputs, exact=exact)


def _time(r: Random) -> Drawn:
    inputs, steps, hidden, outputs = r.randint(1, 3), r.randint(1, 5), r.randint(1, 4), r.randint(1, 4)
    padded = r.random() < 0.2
    model = altmin.models.elman(hidden, steps, inputs, outputs, padded)
    if r.random() < 0.2:
        model = nn.Sequential(model[0], altmin.Recurrent(hidden, hidden), *model[1:])
    return Drawn(model, (steps, inputs + padded), outputs, exact=not padded, recurrent=True)


def _text(r: Random) -> Drawn:
    words, length, width, outputs = r.randint(2, 9), r.randint(1, 4), r.randint(1, 4), r.randint(1, 4)
    modules: list[nn.Module] = [nn.Embedding(words, width), nn.Flatten()]
    exact = _layers(r, length * width, outputs, modules)
    return Drawn(nn.Sequential(*modules), (length,), outputs, exact=exact, integers=words)


def _spoil(r: Random, drawn: Drawn) -> None:
    """Something is wrong with the model: with what it is, with one of its modules, or with a weight."""
    drawn.exact = drawn.good = False
    model = drawn.model
    assert isinstance(model, nn.Sequential)
    width = drawn.outputs
    spoilt = {
        "None": lambda: None,
        "a Linear": lambda: nn.Linear(3, 3),
        "a string": lambda: "mlp-2x100",
        "an empty Sequential": lambda: nn.Sequential(),
        "no parameters": lambda: nn.Sequential(nn.ReLU(), nn.Flatten()),
        "a layer that does not fit": lambda: nn.Sequential(*model, nn.Linear(width + 1, 2)),
        "a layer that returns a pair": lambda: nn.Sequential(*model, Pair(width), nn.Linear(width, width)),
        "an LSTM in the chain": lambda: nn.Sequential(*model, nn.LSTM(width, width), nn.Linear(width, width)),
        "a layer twice": lambda: nn.Sequential(*model, *[nn.Linear(width, width)] * 2),
        "a lazy layer": lambda: nn.Sequential(*model, nn.LazyLinear(3)),
        "a layer of width 0": lambda: nn.Sequential(*model, nn.Linear(width, 0), nn.Linear(0, width)),
        "an output that is constant": lambda: nn.Sequential(*model, Constant(width)),
        "a random activation": lambda: nn.Sequential(*model, nn.RReLU(), nn.Linear(width, width)),
        "a sign at the end": lambda: nn.Sequential(*model, altmin.Sign()),
        "one number too few": lambda: nn.Sequential(*model, nn.Flatten(0)),
        "two types": lambda: nn.Sequential(*model, nn.Linear(width, width).half()),
        "half": lambda: nn.Sequential(*model).half(),
        "complex": lambda: nn.Sequential(*model, nn.Linear(width, width, dtype=torch.complex64)),
        "on no device": lambda: nn.Sequential(*model).to("meta"),
        "partly on no device": lambda: nn.Sequential(*model, nn.Linear(width, width, device="meta")),
        "weights that are not numbers": lambda: _filled(model, float("nan")),
        "infinite weights": lambda: _filled(model, float("inf")),
        "weights of 1e30": lambda: _filled(model, 1e30),
        "weights of 0": lambda: _filled(model, 0.0),
    }
    what = r.choice(sorted(spoilt))
    drawn.model = spoilt[what]()  # type: ignore[assignment]
    drawn.words += f", spoilt: {what}"


def _filled(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model
