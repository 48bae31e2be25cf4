"""Data sets by name, as standardised tensors. Files are checked before they are used.

>>> from altmin.data import dataset
>>> dataset("mnist").sample_shape, dataset("mnist").classes, dataset("mnist").splits["train"]
((1, 28, 28), 10, 50000)
"""

from altmin.data.augment import AUGMENTATIONS, CropFlip, RandomWindows
from altmin.data.base import SPLITS, Damaged, Dataset, Description
from altmin.data.higgs import PartialData
from altmin.data.registry import dataset, describe, fetch, load, names, verify
from altmin.data.shakespeare import windows

__all__ = [
    "AUGMENTATIONS",
    "SPLITS",
    "CropFlip",
    "Damaged",
    "Dataset",
    "Description",
    "PartialData",
    "RandomWindows",
    "dataset",
    "describe",
    "fetch",
    "load",
    "names",
    "verify",
    "windows",
]
