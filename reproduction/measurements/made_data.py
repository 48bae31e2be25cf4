"""Generated samples of the tasks in tasks.py: of three splits, each a function of the split's name alone."""

import math

import torch
from torch import Tensor

Samples = tuple[Tensor, Tensor]

_SEEDS = {"train": 1, "validation": 2, "test": 3}


def _generator(split: str) -> torch.Generator:
    return torch.Generator().manual_seed(_SEEDS[split])


def sine(split: str) -> Samples:
    """y = sin 6x. Trained on 256 points of [-1, 1]; measured on those half and a quarter of the way to the next."""
    step = 2 / 255
    shift = {"train": 0.0, "validation": step / 2, "test": step / 4}[split]
    x = torch.linspace(-1, 1, 256)[: 256 - (shift > 0), None] + shift
    return x, torch.sin(6 * x)


def friedman(split: str) -> Samples:
    """Friedman #1: 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + noise of deviation 1, ten inputs uniform on
    [0, 1]; inputs and targets standardised by their known mean and deviation (14.4 and 5 to within a percent)."""
    draw = _generator(split)
    x = torch.rand(4000 if split == "train" else 2000, 10, generator=draw)
    y = 10 * torch.sin(math.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    y = y + torch.randn(len(x), generator=draw)
    return (x - 0.5) * math.sqrt(12), ((y - 14.4) / 5)[:, None]


def onehot(split: str, features: int = 8, levels: int = 50) -> Samples:
    """Categorical features one-hot encoded, level k in proportion to 1/k, so that most inputs are rare.

    The label's log-odds are a sum of random effects of each level and of each pair of levels of neighbouring features.
    """
    world = torch.Generator().manual_seed(0)
    single = torch.randn(features, levels, generator=world)
    double = torch.randn(features - 1, levels, levels, generator=world)
    draw = _generator(split)
    frequency = 1 / torch.arange(1.0, levels + 1)
    rows = 20_000 if split == "train" else 5_000
    level = torch.stack([torch.multinomial(frequency, rows, True, generator=draw) for _ in range(features)], 1)
    column = torch.arange(features)
    odds = single[column, level].sum(1) + double[column[:-1], level[:, :-1], level[:, 1:]].sum(1)
    y = (torch.rand(rows, generator=draw) < torch.sigmoid(2 * odds)).long()
    return torch.nn.functional.one_hot(level, levels).flatten(1).float(), y


def drifting(split: str, samples: int = 8000, inputs: int = 10, centres: int = 20) -> Samples:
    """A stream: points around centres of two classes that wander through the unit cube, each on its own straight way
    (mirrored at the walls), about a quarter of the cube's side over the stream."""
    draw = _generator(split)
    start, width = torch.rand(centres, inputs, generator=draw), 0.05 + 0.1 * torch.rand(centres, generator=draw)
    way = torch.randn(centres, inputs, generator=draw)
    way = 0.5 * way / way.norm(dim=1, keepdim=True)
    chosen = torch.randint(centres, (samples,), generator=draw)
    time = torch.arange(samples)[:, None] / samples
    where = start[chosen] + time * way[chosen]
    where = 1 - (where % 2 - 1).abs()  # a ball that bounces between 0 and 1
    x = where + width[chosen, None] * torch.randn(samples, inputs, generator=draw)
    return (x - 0.5) * math.sqrt(12), chosen % 2


def repeated(split: str, vocabulary: int = 16, length: int = 32, back: int = 3) -> Samples:
    """Random sequences of tokens, one-hot encoded; the target at each place is the token `back` places before it (token
    0 where there is none)."""
    draw = _generator(split)
    tokens = torch.randint(vocabulary, (16_000 if split == "train" else 500, length), generator=draw)
    return torch.nn.functional.one_hot(tokens, vocabulary).float(), torch.nn.functional.pad(tokens, (back, -back))
