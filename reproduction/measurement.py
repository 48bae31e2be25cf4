"""What a figure is made of: measurements that can be distinguished, made seed by seed, and drawn as points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from altmin import data
from altmin.training.runs import Row, Tick
from altmin.training.samples import Samples, fingerprint

__all__ = ["Measurement", "Row", "Setting", "Tick"]


@dataclass(frozen=True)
class Setting:
    """Where measurements are made. environment: versions and hardware, kept with every row."""

    device: torch.device
    data_dir: Path | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    loaded: dict[Any, Samples] = field(default_factory=dict, repr=False, compare=False)
    """The samples of one data set at a time."""

    def samples(self, name: str, part: str, limit: int | None = None) -> Samples:
        """The first `limit` samples of a part ("train", "validation", "test"), on the device."""
        if any(known != name for known, _ in self.loaded):
            self.loaded.clear()
        if (name, part) not in self.loaded:
            x, y = data.load(name, part, self.data_dir)
            self.loaded[name, part] = x.to(self.device), y.to(self.device)
        x, y = self.loaded[name, part]
        return x[:limit], y[:limit]

    def about(self, samples: Samples) -> Row:
        """What a row says of the samples it was trained on."""
        return {"data": fingerprint(samples), "rows": len(samples[0])}


class Measurement(Protocol):
    """One curve of a figure, or a point of one. panel: which of the figure's panels it belongs to. name: its curve's;
    those of one panel and name are drawn as one curve. seeds: how many there are, counted from 0."""

    @property
    def panel(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def seeds(self) -> int: ...

    def config(self) -> dict[str, Any]:
        """All that its results depend on but the seed, as JSON holds it."""

    def lacking(self, setting: Setting) -> str:
        """What is missing to make it here, in words; empty if nothing is."""

    def reduced(self) -> "Measurement":
        """One of the same kind for a preview of the figure, which takes seconds."""

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """A row for each seed: "seed", and what was measured."""

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """What a row shows, as (x, y), against one of the figure's axes."""
