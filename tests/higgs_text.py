"""A HIGGS text of 100 rows, and reading it without the warning that it is a part."""

import gzip
import warnings
from pathlib import Path

import numpy as np
from torch import Tensor

from altmin.data import PartialData
from altmin.data.higgs import HIGGS, Higgs


def hundred_rows() -> np.ndarray:
    """Rows of a label and 28 features, of which the last never varies."""
    random = np.random.default_rng(1)
    rows = random.normal(3, 2, (100, 29)).astype(np.float32)
    rows[:, 0] = random.integers(0, 2, 100)
    rows[:, -1] = np.float32(0.1)
    return rows


def text(rows: np.ndarray) -> str:
    """As UCI writes it: 18 digits and an exponent, with which a float32 survives."""
    return "".join(",".join(f"{value:.18e}" for value in row) + "\n" for row in rows)


def write(root: Path, content: str | bytes, name: str = "HIGGS-100.csv.gz") -> Path:
    folder = root / "higgs"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(gzip.compress(content.encode() if isinstance(content, str) else content))
    return path


def load(split: str, root: Path, dataset: Higgs = HIGGS) -> tuple[Tensor, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialData)
        return dataset.load(split, root)


def caches(root: Path) -> list[Path]:
    """Every cache below `root`."""
    return sorted(path.parent for path in root.rglob("index.json"))
