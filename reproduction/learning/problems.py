"""What is learnt: samples, a net and a loss, by the name of the data.

Most are data sets of `altmin.data` with nets by their names. Three are made here: pixels that are to be reconstructed,
random windows of a text, and a regression whose inputs vary much more in some directions than in others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin import data, models
from altmin.data import RandomWindows
from altmin.training.samples import Samples, generator_of
from reproduction.results import Setting

INPUTS, HIDDEN, OUTPUTS = 64, 16, 16
"""Sizes of the regression: a linear net with one hidden layer, and a teacher of the same form."""
SMALLEST = 1e-4
"""The smallest variance of an input of the regression, along an axis of its own; the largest is 1."""
NOISE = 0.1
"""Standard deviation of the noise in the training targets of the regression, whose own is 1."""
HELD_BACK = 10_000
"""Samples of the regression's validation and test parts."""


class SummedCrossEntropy(nn.Module):
    """The sum of the sigmoid cross-entropies of an image's pixels, as the mean over images: the loss of the
    autoencoders of K-FAC, K-BFGS and LocoProp. y: pixels from 0 to 1."""

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, y, reduction="sum") / len(y)


Load = Callable[[Setting, str, int | None, int], Samples]
"""(setting, part, number of training samples or None for all, seed) -> samples on the device."""


@dataclass(frozen=True)
class Problem:
    """build: the net by its name. loss: None for cross-entropy. metric: "accuracy" or "loss"."""

    load: Load
    build: Callable[[str], nn.Module]
    loss: nn.Module | None = None
    metric: str = "accuracy"


def named(name: str) -> Problem:
    """A data set of `altmin.data`, with nets as `altmin train` builds them."""

    def load(setting: Setting, part: str, limit: int | None, seed: int) -> Samples:
        return setting.samples(name, part, limit if part == "train" else None)

    return Problem(load, partial(_net, name))


def _net(name: str, model: str) -> nn.Module:
    known = data.dataset(name)
    return models.create(model, known.sample_shape, known.classes, known.tokens)


def pixels(setting: Setting, part: str, limit: int | None, seed: int) -> Samples:
    """MNIST's images as they are, with pixels from 0 to 1, each one its own target."""
    train = setting.samples("mnist", "train")[0]
    low, high = train.min(), train.max()  # what black and white have become
    x = setting.samples("mnist", part, limit if part == "train" else None)[0]
    x = ((x - low) / (high - low) * 255).round() / 255
    return x, x.flatten(1)


def windows(setting: Setting, part: str, limit: int | None, seed: int) -> Samples:
    """The text in windows, in training at `limit` random places that depend on the seed."""
    x, y = setting.samples("shakespeare", part)
    if part != "train" or limit is None:
        return x, y
    text = RandomWindows(x, y)
    return text.apply(x, y, text.draw(limit, generator_of(f"windows {seed}")))


def regression(setting: Setting, part: str, limit: int | None, seed: int) -> Samples:
    """y = F G x, with x normal, of variances from 1 down to `SMALLEST` along the axes of a random basis, F and G random
    with orthonormal rows. Each run has training samples of its own, with noise; others have none, so that a loss on
    them is the error of the net itself."""
    first = generator_of("teacher")
    basis, teacher, mixed = (
        torch.linalg.qr(torch.randn(n, n, generator=first, dtype=torch.float64)).Q for n in (INPUTS, INPUTS, OUTPUTS)
    )
    deviations = torch.logspace(0, 0.5 * torch.log10(torch.tensor(SMALLEST)).item(), INPUTS, dtype=torch.float64)
    generator = generator_of(f"{part} {seed if part == 'train' else ''}")
    count = limit or HELD_BACK if part == "train" else HELD_BACK
    x = torch.randn(count, INPUTS, generator=generator, dtype=torch.float64) * deviations @ basis.T
    scale = (deviations.square().mean() * HIDDEN / OUTPUTS).sqrt()
    y = x @ teacher[:HIDDEN].T @ mixed.T / scale
    if part == "train":
        y += NOISE * torch.randn(y.shape, generator=generator, dtype=torch.float64)
    return x.float().to(setting.device), y.float().to(setting.device)


def two_linear_layers(model: str) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN, bias=False), nn.Linear(HIDDEN, OUTPUTS, bias=False))


PROBLEMS = {
    "mnist-pixels": Problem(pixels, lambda model: models.autoencoder(), SummedCrossEntropy(), "loss"),
    "shakespeare": Problem(windows, partial(_net, "shakespeare"), None, "loss"),
    "anisotropic": Problem(regression, two_linear_layers, nn.MSELoss(), "loss"),
}


def problem(name: str) -> Problem:
    """By the name of its data. ValueError for an unknown one."""
    return PROBLEMS.get(name) or named(data.dataset(name).name)
