"""`Case`: what a function measures with some settings, a measurement without a curve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from reproduction.results import Row, Setting, Tick


@dataclass(frozen=True)
class Case:
    """One row of a table for each seed.

    measure: (case, seed, setting) -> what was measured. settings: all that this depends on, beside `options`, those of
    a method, and `part`, the samples that are measured on. small: what differs in a preview. Settings with a "device"
    are measured on no other.
    """

    measure: Callable[["Case", int, Setting], Row]
    settings: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    part: str = "test"
    seeds: int = 3
    small: Mapping[str, Any] = field(default_factory=dict)
    together: ClassVar[bool] = False

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def panel(self) -> str:
        return ", ".join(map(str, self.settings.values()))

    @property
    def name(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.options.items()) or self.part

    @property
    def words(self) -> set[str]:
        """By which `--only` selects it."""
        return {self.part, *map(str, [*self.settings.values(), *self.options.values()])}

    def config(self) -> dict[str, Any]:
        return {**self.settings, "options": dict(self.options), "part": self.part}

    def lacking(self, setting: Setting) -> str:
        device = self.settings.get("device", setting.device.type)
        return "" if device == setting.device.type else f"give --device {device}"

    def reduced(self) -> "Case":
        return replace(self, seeds=1, settings={**self.settings, **self.small})

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        rows = []
        for n, seed in enumerate(seeds):
            tick(n, len(seeds), f"seed {seed}")
            rows.append({"seed": seed, **self.measure(self, seed, setting)})
        return rows

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        return []
