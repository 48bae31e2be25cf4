"""A fitted estimator as one module: raw numbers in, probabilities or predictions out."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from altmin.data.columns import Columns, Number


class Exported(nn.Module):
    """head(network(prepare(x))) for rows x of raw numbers, of any type of float; the network is a copy.

    It computes in the types of its parts, which `.float()` or `.to(...)` changes as of any module.
    """

    def __init__(self, prepare: nn.Module, network: nn.Module, head: nn.Module):
        super().__init__()
        self.prepare, self.network, self.head = prepare, copy.deepcopy(network), head
        self.to(next(network.parameters()).device).eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        kind = next(self.network.parameters()).dtype
        found: Tensor = self.head(self.network(self.prepare(x).to(kind)))
        return found


class Standardise(nn.Module):
    """(x - mean) / scale of each column."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Sequence[float], scale: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean) / self.scale


class Unscale(nn.Module):
    """x scale + mean: standardised targets in their own unit. shape: of the targets of a row."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Sequence[float], scale: Sequence[float], shape: tuple[int, ...]):
        super().__init__()
        self.shape = shape
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        found = (x.to(self.mean.dtype) * self.scale + self.mean).to(x.dtype)
        return found if self.shape else found.squeeze(1)


class Encode(nn.Module):
    """What `Columns.encode` does to columns of numbers, where NaN is a missing value.

    places: for each of the columns its place among those given.
    """

    places: Tensor
    order: Tensor

    def __init__(self, columns: Sequence[Number], places: Sequence[int]):
        super().__init__()
        self.standardise = Standardise([each.mean for each in columns], [each.std for each in columns])
        n = len(columns)  # values come first, then which of them are missing
        order = [i for k, each in enumerate(columns) for i in [k, *[n + k] * each.missing]]
        self.register_buffer("places", torch.tensor(places))
        self.register_buffer("order", torch.tensor(order))

    def forward(self, x: Tensor) -> Tensor:
        x = x.index_select(1, self.places)
        absent = x.isnan()
        z = self.standardise(x)
        z = torch.where(absent, torch.zeros_like(z), z)
        return torch.cat([z, absent.to(z.dtype)], 1).index_select(1, self.order)


def encoder(columns: Columns, names: Sequence[str]) -> Encode:
    """`Encode` for a table whose columns have these names. ValueError for a column of categories."""
    if columns.categories:
        raise ValueError(
            f"column {columns.categories[0]!r} has categories, and an exported module takes numbers alone; encode them "
            "before fit, or use module_ with what inputs_of(X) gives"
        )
    numbers = [each for each in columns.columns if isinstance(each, Number)]
    return Encode(numbers, [list(names).index(each.name) for each in numbers])
