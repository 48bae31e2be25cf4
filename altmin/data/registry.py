"""The data sets by name."""

from pathlib import Path
from typing import Literal, overload

from torch import Tensor

from altmin.common.errors import unknown
from altmin.data.base import Dataset, Description, Folder
from altmin.data.cifar10 import CIFAR10
from altmin.data.higgs import HIGGS
from altmin.data.idx_images import FASHION_MNIST, MNIST, MNIST_PERMUTED, MNIST_ROWS, MNIST_SEQUENTIAL
from altmin.data.shakespeare import SHAKESPEARE, Text

KNOWN: tuple[Dataset, ...] = (
    *(MNIST, MNIST_SEQUENTIAL, MNIST_PERMUTED, MNIST_ROWS, FASHION_MNIST),
    *(CIFAR10, HIGGS, SHAKESPEARE),
)
DATASETS = {known.name: known for known in KNOWN}


def names() -> list[str]:
    """The names that `load` knows.

    >>> names()
    ['mnist', 'mnist-sequential', 'mnist-permuted', 'mnist-rows', 'fashion-mnist', 'cifar10', 'higgs', 'shakespeare']
    """
    return list(DATASETS)


@overload
def dataset(name: Literal["shakespeare"]) -> Text: ...
@overload
def dataset(name: str) -> Dataset: ...
def dataset(name: str) -> Dataset:
    """The data set called `name`; no file is opened. Raises ValueError for an unknown name."""
    try:
        return DATASETS[name]
    except KeyError:
        raise unknown("data set", name, DATASETS) from None


def load(name: str, split: str, data_dir: Folder = None) -> tuple[Tensor, Tensor]:
    """Samples (float32) and labels (int64) of a split: `train`, `validation` or `test`.

    The samples are standardised by the mean and the standard deviation of the training split. For `shakespeare` both
    are int64 tokens: windows of the text, and for each of their characters the next one. The files are read from
    `data_dir`, else from `$ALTMIN_DATA`, else from the user's cache folder, and checked. Nothing is downloaded.

    Raises ValueError for an unknown name or split, FileNotFoundError, which says how to get the files, if they are
    missing, and Damaged if one of them is invalid.
    """
    return dataset(name).load(split, data_dir)


def describe(name: str, data_dir: Folder = None) -> Description:
    """Return shape, classes, split sizes, licence and source of a data set, and whether its files exist."""
    return dataset(name).describe(data_dir)


def fetch(name: str, data_dir: Folder = None) -> list[Path]:
    """Download and check the files that are missing or damaged, and return their paths; an empty list if none is."""
    return dataset(name).fetch(data_dir)


def verify(name: str, data_dir: Folder = None) -> dict[Path, str]:
    """Compare every file of a data set with its checksum: by path "sound", "missing" or "damaged"."""
    return dataset(name).verify(data_dir)
