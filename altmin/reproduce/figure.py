"""A figure: its runs, how they are drawn, and what the paper says they show."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from altmin.describe import plain
from altmin.errors import unknown
from altmin.reproduce.claims import Claim

QUICK_ROWS = 10_000


@dataclass(frozen=True)
class Run:
    """One curve: a method on a model and data, with as many seeds, counted from 0. limit: the first so many training
    samples only. label: the curve's name in the picture; the method's if there is none."""

    method: str
    model: str
    data: str = "mnist"
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 1
    batch_size: int = 200
    schedule: str = "constant"
    seeds: int = 5
    eval_batches: tuple[int, ...] = ()
    freeze_first: bool = False
    limit: int | None = None
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or self.method

    @property
    def panel(self) -> str:
        """Which of a figure's panels it belongs to."""
        return f"{self.data}, {self.model}"

    def config(self) -> dict[str, Any]:
        """All that tells it from other runs, as JSON holds it: everything but its name and how many seeds it has."""
        settings = asdict(self) | {"options": dict(self.options), "eval_batches": list(self.eval_batches)}
        return {name: plain(value) for name, value in settings.items() if name not in ("seeds", "label")}

    def reduced(self) -> "Run":
        """A run of the same kind for a look at the figure: one seed, two epochs at most, the first 10,000 samples."""
        limit = min(self.limit or QUICK_ROWS, QUICK_ROWS)
        epochs, batches = min(self.epochs, 2), -(-limit // self.batch_size)
        seen = tuple(n for n in self.eval_batches if n <= epochs * batches)
        return replace(self, seeds=1, epochs=epochs, limit=limit, eval_batches=seen)


@dataclass(frozen=True)
class Mark:
    """A value that the paper states: drawn at x, y in a panel, and named after what reached it."""

    panel: str
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Figure:
    """runs: all curves. axis: "batches" or "epochs", against which they are drawn. minutes: about how long it takes on
    one H200. quick: makes a run smaller for `--quick`, or leaves it out (None)."""

    name: str
    title: str
    runs: Sequence[Run]
    axis: str
    minutes: float
    claims: Sequence[Claim] = ()
    marks: Sequence[Mark] = ()
    quick: Callable[[Run], Run | None] = Run.reduced

    def smaller(self) -> "Figure":
        """The figure as `--quick` makes it; it bears on no claim."""
        runs = [small for run in self.runs if (small := self.quick(run)) is not None]
        return replace(self, runs=runs, claims=())


def load(folder: Path) -> dict[str, Figure]:
    """All figures of a folder by name: every file in it declares one as FIGURE. ValueError if there are none."""
    found: dict[str, Figure] = {}
    for path in sorted(folder.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"altmin_figure_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        figure: Figure = module.FIGURE
        if figure.name != path.stem:
            raise ValueError(f"{path} declares figure {figure.name!r}; a file has its figure's name")
        found[figure.name] = figure
    if not found:
        raise ValueError(
            f"there are no figures in {folder}; they are part of a clone of the repository (experiments/figures), say "
            "where it is with --figures DIR"
        )
    return found


def choose(figures: Mapping[str, Figure], name: str) -> Figure:
    """A figure by name. Raises ValueError for an unknown one."""
    if name not in figures:
        raise unknown("figure", name, figures)
    return figures[name]
