"""A fitted estimator as one module: raw numbers in, probabilities or predictions out."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Exported(nn.Module):
    """head(network(prepare(x))) for rows x of raw numbers (rows, columns), of any type of float; the network is a copy.

    It computes in the types of its parts, which `.float()` or `.to(...)` changes as of any module.
    """

    def __init__(self, prepare: nn.Module, network: nn.Module, head: nn.Module, columns: int):
        super().__init__()
        self.columns = columns
        self.prepare, self.network, self.head = copy.deepcopy(prepare), copy.deepcopy(network), head
        self.to(next(network.parameters()).device).eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != (self.columns,):  # one column would be broadcast, and more left out
            raise ValueError(f"rows of {self.columns} numbers are expected, given {tuple(x.shape)}")
        kind = next(self.network.parameters()).dtype
        output: Tensor = self.head(self.network(self.prepare(x).to(kind)))
        return output


class Standardise(nn.Module):
    """Standardisation of each column: (x - mean) / scale."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Sequence[float], scale: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean) / self.scale


class Unscale(Standardise):
    """x scale + mean: standardised targets in their own unit. shape: of the targets of a row."""

    def __init__(self, mean: Sequence[float], scale: Sequence[float], shape: tuple[int, ...] = ()):
        super().__init__(mean, scale)
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.scale + self.mean
        return y if self.shape else y.squeeze(1)


class Encode(nn.Module):
    """Inputs of a network for rows of numbers as `altmin.sklearn.tables.codes` gives them.

    numbers: places of the columns of numbers, with their mean and scale; NaN is a missing value, which those of
    `marked` have a column of 0 and 1 for. texts: for each column of categories its place, the number of categories, and
    whether the last of them is for missing values.
    """

    def __init__(self, numbers: list[int], mean: list[float], scale: list[float], marked: list[int], texts: list[Any]):
        super().__init__()
        self.standardise = Standardise(mean, scale)
        self.numbers, self.marked, self.texts = numbers, marked, texts

    def forward(self, x: Tensor) -> Tensor:
        z = self.standardise(x[:, self.numbers])
        parts = [torch.where(z.isnan(), torch.zeros_like(z), z), x[:, self.marked].isnan().to(z.dtype)]
        for place, count, missing in self.texts:
            code = x[:, [place]]
            code = torch.where(code.isnan(), torch.full_like(code, count - 1 if missing else -1), code)
            parts.append((code == torch.arange(count, device=x.device)).to(z.dtype))
        return torch.cat(parts, 1)
