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


def change(given: Any, source: Source) -> Change | None:
    """Return what the augmentation does to a batch; None for none. given: a name, a function (x, generator) -> x, an
    object with `draw` and `apply`, or None. source: of the samples, of which some augmentations are made."""
    if given is None:
        return None
    if not isinstance(source, Stored) or isinstance(source.x, Inputs):
        raise ValueError("augment of fit changes one tensor of samples; a DataLoader has transforms of its own")
    if isinstance(given, str):
        if given not in AUGMENTATIONS:
            raise unknown("augmentation", given, AUGMENTATIONS)
        given = AUGMENTATIONS[given](source.x, source.y)
    if not isinstance(given, Drawn) and not callable(given):
        raise TypeError(f"augment of fit is a name or a function (x, generator) -> x, given {shown(given)}")

    def changed(x: Any, y: Tensor, generator: torch.Generator) -> Samples:
        if isinstance(given, Drawn):
            return given.apply(x, y, given.draw(len(x), generator))
        return given(x, generator), y

    return changed
