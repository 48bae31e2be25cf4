"""The augmentation of a run: which one it is, and batches changed by random numbers of seed, epoch and batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from altmin.common.errors import shown, unknown
from altmin.common.inputs import Inputs
from altmin.data.augment import AUGMENTATIONS, Drawn
from altmin.training.samples import Samples
from altmin.training.sources import Source, Stored

Change = Callable[[Any, Tensor, torch.Generator], Samples]
"""Function of the inputs and targets of a batch, and a generator of the CPU."""


def change(augment: Any, source: Source) -> Change | None:
    """Return the function that augments a batch; None without augmentation. augment: a name, a function (x, generator)
    -> x, an object with `draw` and `apply`, or None. source: the samples, which some augmentations need."""
    if augment is None:
        return None
    if not isinstance(source, Stored) or isinstance(source.x, Inputs):
        raise ValueError("augment of fit changes one tensor of samples; a DataLoader has transforms of its own")
    if isinstance(augment, str):
        if augment not in AUGMENTATIONS:
            raise unknown("augmentation", augment, AUGMENTATIONS)
        augment = AUGMENTATIONS[augment](source.x, source.y)
    if not isinstance(augment, Drawn) and not callable(augment):
        raise TypeError(f"augment of fit is a name or a function (x, generator) -> x, given {shown(augment)}")

    def changed(x: Any, y: Tensor, generator: torch.Generator) -> Samples:
        if isinstance(augment, Drawn):
            return augment.apply(x, y, augment.draw(len(x), generator))
        return augment(x, generator), y

    return changed
