"""The augmentation of a run: which one it is, and batches changed by random numbers of seed, epoch and batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from altmin.common.errors import unknown
from altmin.data.augment import AUGMENTATIONS, Augmentation, Drawn
from altmin.training.samples import Samples

Given = Augmentation | Drawn | str | None
"""A name, a function (x, generator) -> x, an object with `draw` and `apply`, or nothing."""
Change = Callable[[Tensor, Tensor, torch.Generator], Samples]


def change(given: Given, train: Samples, trained: Any = ()) -> Change | None:
    """What the augmentation does to a batch with a generator of the CPU; None for none.

    trained: the methods that are to learn from it. ValueError for an unknown name, for one that cannot take the
    training samples, and for a method that keeps variables of each sample. TypeError for what is none.
    """
    if given is None:
        return None
    for method in trained:
        if getattr(method, "takes_rows", False):
            raise ValueError(
                f"{type(method).__name__} keeps variables for each sample, which has to be the same in every pass; "
                "leave out augment"
            )
    found = named(given, train)
    if isinstance(found, Drawn):
        drawn = found  # for mypy

        def changed(x: Tensor, y: Tensor, generator: torch.Generator) -> Samples:
            return drawn.apply(x, y, drawn.draw(len(x), generator))
    elif callable(found):
        function = found

        def changed(x: Tensor, y: Tensor, generator: torch.Generator) -> Samples:
            return function(x, generator), y
    else:
        raise TypeError(f"augment of fit is a name or a function (x, generator) -> x, given {given!r}")
    one = train[0][:1], train[1][:1]
    for old, new in zip(one, changed(*one, torch.Generator().manual_seed(0)), strict=True):
        if not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError("augment of fit gives samples of another shape or type; it must keep both")
    return changed


def drawn(given: Given, train: Samples) -> Drawn | None:
    """The augmentation in two parts, as a recorded epoch needs it; ValueError for a function, which has but one."""
    if given is None:
        return None
    change(given, train)
    found = named(given, train)
    if not isinstance(found, Drawn):
        raise ValueError(
            "augment of train_on_device is a name or an object with draw and apply: a function draws on the processor, "
            f"which a recorded epoch does not come back to; the names are {', '.join(AUGMENTATIONS)}, or use fit"
        )
    return found


def named(given: Any, train: Samples) -> Any:
    """The augmentation by this name for these samples; what is no name is returned."""
    if not isinstance(given, str):
        return given
    if given not in AUGMENTATIONS:
        raise unknown("augmentation", given, AUGMENTATIONS)
    return AUGMENTATIONS[given](*train)
