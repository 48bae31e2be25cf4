"""The augmentation of a run: which one it is, and batches changed by random numbers of seed, epoch and batch."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from altmin.common.errors import shown, unknown
from altmin.common.inputs import Inputs
from altmin.data.augment import AUGMENTATIONS, Augmentation, Drawn
from altmin.training.samples import Samples


@dataclass(frozen=True)
class Change:
    """What an augmentation, a function or one in two parts, does to a batch with a generator of the CPU."""

    by: Augmentation | Drawn

    def __call__(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Samples:
        if isinstance(self.by, Drawn):
            return self.by.apply(x, y, self.by.draw(len(x), generator))
        return self.by(x, generator), y


def change(given: Any, train: Samples, trained: Any = ()) -> Change | None:
    """What the augmentation does to a batch; None for none. given: a name, a function (x, generator) -> x, an object
    with `draw` and `apply`, or None.

    trained: the methods that are to learn from it. ValueError for an unknown name, for one that cannot take the
    training samples, and for a method that keeps variables of each sample. TypeError for what is none.
    """
    if given is None:
        return None
    if isinstance(train[0], Inputs):
        raise ValueError("augment of fit changes one tensor, and the samples have several inputs; leave it out")
    for method in trained:
        if getattr(method, "takes_rows", False):
            raise ValueError(f"{type(method).__name__} keeps variables of each sample; leave out augment")
    if isinstance(given, str):
        if given not in AUGMENTATIONS:
            raise unknown("augmentation", given, AUGMENTATIONS)
        given = AUGMENTATIONS[given](*train)
    elif not isinstance(given, Drawn) and not callable(given):
        raise TypeError(f"augment of fit is a name or a function (x, generator) -> x, given {shown(given)}")
    changed, one = Change(given), (train[0][:1], train[1][:1])
    for old, new in zip(one, changed(*one, torch.Generator().manual_seed(0)), strict=True):
        if not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError("augment of fit gives samples of another shape or type; it must keep both")
    return changed


def drawn(given: Any, train: Samples) -> Drawn | None:
    """The augmentation in two parts, as a recorded epoch needs it; ValueError for a function, which has but one."""
    found = change(given, train)
    if found is None or isinstance(found.by, Drawn):
        return None if found is None else found.by  # type: ignore[return-value]
    raise ValueError(
        "augment of train_on_device is a name or an object with draw and apply: a function draws on the processor, "
        f"which a recorded epoch does not come back to; the names are {', '.join(AUGMENTATIONS)}, or use fit"
    )
