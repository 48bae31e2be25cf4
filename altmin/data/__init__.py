"""Data sets by name, as standardised tensors. Files are checked before they are used.

>>> from altmin.data import dataset
>>> dataset("mnist").sample_shape, dataset("mnist").classes, dataset("mnist").splits["train"]
((1, 28, 28), 10, 50000)
"""

from altmin.data.augment import AUGMENTATIONS, CropFlip, crop_flip
from altmin.data.base import SPLITS, Check, Dataset, Description
from altmin.data.csv_table import csv_batches
from altmin.data.damage import Damaged
from altmin.data.higgs import PartialData
from altmin.data.random_windows import RandomWindows
from altmin.data.registry import dataset, describe, fetch, load, names, verify
from altmin.data.shakespeare import windows
from altmin.data.shard_writer import write_shards
from altmin.data.shards import Shards
from altmin.data.standardise import Scale

__all__ = [
    "AUGMENTATIONS",
    "SPLITS",
    "Check",
    "CropFlip",
    "Damaged",
    "Dataset",
    "Description",
    "PartialData",
    "RandomWindows",
    "Scale",
    "Shards",
    "crop_flip",
    "csv_batches",
    "dataset",
    "describe",
    "fetch",
    "load",
    "names",
    "verify",
    "windows",
    "write_shards",
]
