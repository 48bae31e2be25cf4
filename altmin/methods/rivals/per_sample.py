"""Variables of full-batch methods for every sample, by its row number, also where samples are spread over ranks."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus.context import BatchShard, BucketedSum, Context, sum_tree
from altmin.common.state import matched
from altmin.core.weights.sums import Sums


class Table:
    """Variables of samples, one row for each sample, found by the sample's number in the data.

    widths: how many numbers each variable has for a sample. Rows are added as samples arrive; `known` marks those that
    have, `seen` those of the pass under way.
    """

    def __init__(self, widths: Mapping[str, int], like: Tensor):
        self.widths, self.like = dict(widths), like.detach().new_empty(0)
        self.length = 0
        self.set_state(self._zeros(0))

    def _zeros(self, rows: int) -> dict[str, Any]:
        values = {name: self.like.new_zeros(rows, width) for name, width in self.widths.items()}
        return {"values": values, **{name: self.like.new_zeros(rows, dtype=torch.bool) for name in ("known", "seen")}}

    def find(self, rows: Tensor | None, samples: int) -> Tensor:
        """Return the row numbers of a batch, checked, on the table's device; without any, the batch is all the data.

        ValueError if they are not a whole number for each sample, or if one is seen twice in a pass. Changes nothing.
        """
        if rows is None:
            if bool(self.seen.any()):
                raise ValueError(
                    "a second batch in one pass: give the numbers of its samples as rows=..., so that their variables "
                    "are found again, or call end_epoch first"
                )
            return torch.arange(samples, device=self.like.device)
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.shape != (samples,):
            kind = f"{rows.dtype} of {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(f"rows has one int64 number for each of the {samples} samples, given {kind}")
        rows = rows.to(self.like.device)
        if bool((rows < 0).any()):
            raise ValueError(f"rows are numbers of samples from 0 on, given {int(rows.min())}")
        inside = rows[rows < self.length]
        if len(rows.unique()) < samples or bool(self.seen[inside].any()):
            raise ValueError("a sample is seen twice in one pass; each pass takes every sample once, then end_epoch")
        return rows

    def new(self, rows: Tensor) -> Tensor:
        """Return a mask of the rows that have no variables yet."""
        inside = rows < self.length
        return ~(inside & self.known[torch.where(inside, rows, 0)]) if self.length else ~inside

    def read(self, rows: Tensor) -> dict[str, Tensor]:
        """Return copies of the variables of rows that are not new."""
        return {name: value.index_select(0, rows) for name, value in self.values.items()}

    def write(self, rows: Tensor, values: Mapping[str, Tensor], length: int = 0) -> None:
        """Set all variables of some rows, which are seen now. The table grows to the highest of them, and to `length`
        rows at least."""
        self._grow(max(length, int(rows.max()) + 1 if len(rows) else 0))
        for name, value in self.values.items():
            value.index_copy_(0, rows, values[name])
        self.known[rows] = True
        self.seen[rows] = True

    def _grow(self, length: int) -> None:
        capacity = len(self.known)
        if length > capacity:
            more = self._zeros(max(length, capacity + capacity // 2) - capacity)
            whole = {"values": self.values, "known": self.known, "seen": self.seen}
            self.set_state(pytree.tree_map(lambda old, new: torch.cat([old, new]), whole, more), self.length)
        self.length = max(self.length, length)

    def counts(self) -> tuple[int, int]:
        """Return how many samples the pass has had, and how many are known."""
        return int(self.seen.sum()), int(self.known.sum())

    def end_pass(self) -> None:
        """Begin the next pass: no sample is seen."""
        self.seen.zero_()

    def state_dict(self) -> dict[str, Any]:
        n = self.length
        values = {name: value[:n] for name, value in self.values.items()}
        return {"values": values, "known": self.known[:n], "seen": self.seen[:n]}

    def matched(self, state: Any, what: str) -> dict[str, Any]:
        """Return a copy, on the table's device, of a state of any number of samples; ValueError unless it is one."""
        known = state["known"]
        copied = matched(state, self._zeros(len(known) if isinstance(known, Tensor) else 0), what)
        return pytree.tree_map(lambda t: t.to(self.like.device), copied)

    def set_state(self, new: Mapping[str, Any], length: int | None = None) -> None:
        """Use these tensors. length: how many rows are in use; None for all."""
        self.values, self.known, self.seen = new["values"], new["known"], new["seen"]
        self.length = len(self.known) if length is None else length


def demand_whole_pass(seen: float, known: float) -> int:
    """Return the number of samples seen. ValueError if some, and if the pass has left out one that is known."""
    if 0 < seen < known:
        raise ValueError(f"this pass has seen {seen:g} of {known:g} samples; each pass takes all of them")
    return int(seen)


def over_ranks(sums: Sequence[Sums], *numbers: float, context: Context) -> tuple[Sequence[Sums], Sequence[float]]:
    """Return the sums over the samples of all ranks, and numbers summed over ranks, in one message; in one process the
    arguments."""
    if context.shard is None:
        return sums, numbers
    total = BucketedSum(context)
    whole = copy.deepcopy(list(sums))
    for part in whole:
        part.A, part.B = total.add((part.A, part.B))
    return whole, total.finish(*numbers)


def own_rows(count: int, shard: BatchShard, device: Any = None) -> Tensor:
    """Return a mask of the rows 0, ..., count - 1 of a rank: every size-th, so that all ranks have as many."""
    return torch.arange(count, device=device) % shard.size == shard.rank


def whole_state(state: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the state of a `Splitting` over all ranks, the same on each, from what each has: samples in one message,
    sums of least squares in another."""
    samples, like = state["samples"], next(iter(state["samples"]["values"].values()))
    marks = {name: samples[name].to(like.dtype) for name in ("known", "seen")}
    values, marks = sum_tree(pytree.tree_map(torch.clone, (samples["values"], marks)), context)
    sums = sum_tree(pytree.tree_map(torch.clone, state["sums"]), context)
    return {**state, "samples": {"values": values, **{name: m > 0 for name, m in marks.items()}}, "sums": sums}


def part_of_state(state: Mapping[str, Any], shard: BatchShard) -> dict[str, Any]:
    """Return a rank's part of the state over all ranks: the variables of its samples; of sums all on the first rank,
    and zeros on others."""
    samples = state["samples"]
    mask = own_rows(len(samples["known"]), shard, samples["known"].device)
    values = {name: torch.where(mask.unsqueeze(1), value, 0) for name, value in samples["values"].items()}
    sums = state["sums"] if shard.rank == 0 else pytree.tree_map(torch.zeros_like, state["sums"])
    marks = {name: samples[name] & mask for name in ("known", "seen")}
    return {**state, "samples": {"values": values, **marks}, "sums": sums}
