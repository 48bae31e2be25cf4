"""Rows of a table, dense or sparse, as the numbers that a network takes: a few at a time, and standardised."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

CHUNK = 1000
"""So many rows of a sparse table are dense at once where no mini-batch says how many."""


def dense(X: Any, rows: Any) -> np.ndarray:
    """Some rows of a table, as an array of their own."""
    part = X[rows]
    return part.toarray() if hasattr(part, "toarray") else np.array(part, order="C")


def chunks(n: int) -> Iterator[slice]:
    """Slices that cover n rows."""
    return (slice(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK))


def learn_scale(scaler: StandardScaler, X: Any, w: np.ndarray | None = None) -> None:
    """Adds the rows of a table to what a scaler knows of means and variances. w: their weights.

    A sparse table goes through the same arithmetic as a dense one, so that both have the same scale.
    """
    for part in chunks(X.shape[0]):
        scaler.partial_fit(dense(X, part), sample_weight=None if w is None else w[part])


def inputs(X: Any, rows: Any, scaler: StandardScaler | None) -> Tensor:
    """Some rows of a table as a tensor of the table's type, (x - mean) / deviation of each column with a scaler."""
    part = dense(X, rows)
    if scaler is not None:
        part = ((part - scaler.mean_) / scaler.scale_).astype(part.dtype, copy=False)
    return torch.from_numpy(part)
