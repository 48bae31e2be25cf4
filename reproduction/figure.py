"""A figure: its measurements, which `make` makes, how they are drawn, and what the paper says they show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

from altmin.common.errors import unknown
from reproduction.claims import Claim, judged, merged
from reproduction.results import RESULTS, Measurement, Results, Setting, Tick
from reproduction.search import Search

Points = Sequence[tuple[float, float]]
MOST = 6
"""Curves in a panel of a figure that says which come first."""
FOLDERS = ("figures", "measurements")
"""Packages whose modules declare figures: each has some in a list FIGURES, unless its name begins with an
underscore."""

# Okabe and Ito's colours, which people with any kind of colour vision can distinguish; markers help in grey.
COLOURS = ("#0072B2", "#D55E00", "#000000", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
METHODS = ("am-mem", "am-adam", "adam", "sgd", "muon", "soap", "k-fac")
"""Methods with the same colour in all pictures, in the order of COLOURS."""
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def style(i: int, variant: int = 0) -> dict[str, Any]:
    """Return colour, marker and line of curve i; those that share a colour, and its variants, have another line.

    >>> style(0)["linestyle"], style(7)["linestyle"], style(0)["color"] == style(7)["color"]
    ('-', '--', True)
    >>> style(0, 1) == style(7)
    True
    """
    line = LINES[(i // len(COLOURS) + variant) % len(LINES)]
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "linestyle": line}


@dataclass(frozen=True)
class Mark:
    """A value that the paper, or another source, states: drawn at x, y in a panel, on the figure's first axis, and
    named after what reached it."""

    panel: str
    x: float
    y: float
    name: str
    source: str = "paper"


@dataclass(frozen=True)
class Curve:
    """points: where it was measured, in rising order, and what all seeds came to there."""

    panel: str
    name: str
    points: list[tuple[float, list[float]]]


@dataclass(frozen=True)
class Figure:
    """runs: all measurements. axes: against which they can be drawn, the picture's first. minutes: about how long it
    takes on one H200. measure: what the curves show, where runs do not say; it is drawn from `bottom` on. log: which of
    "x" and "y" have a logarithmic scale. searches: how settings are looked for. quick: makes a measurement smaller for
    `--quick`, or leaves it out (None). drawn: how many of the axes the picture has. family: of a curve's name; those of
    one family have the same colour, and another line each. level: whether the panels of a row have one vertical scale.
    right: where the picture ends. first: names of curves, of which each panel shows the first `MOST`; all if empty.
    """

    name: str
    title: str
    runs: Sequence[Any]
    axes: Sequence[str] = ("epochs", "batches", "seconds")
    minutes: float = 1
    claims: Sequence[Claim] = ()
    marks: Sequence[Mark] = ()
    measure: str = "test accuracy"
    bottom: float | None = None
    log: str = ""
    searches: Sequence[Search] = ()
    quick: Callable[[Any], Measurement | None] = lambda run: run.reduced()
    drawn: int = 1
    family: Callable[[str], str] = lambda name: name
    level: bool = False
    right: float | None = None
    first: Sequence[str] = ()

    @property
    def results(self) -> Results:
        """The committed results."""
        return Results.read(RESULTS / f"{self.name}.jsonl")

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(run.panel for run in self.runs))

    @property
    def names(self) -> list[str]:
        """Names of the curves, over all panels."""
        return list(dict.fromkeys(run.name for run in self.runs))

    def looks(self, name: str) -> dict[str, Any]:
        """Return colour, marker and line of a curve, as matplotlib calls them."""
        shown = [each for each in self.names if each in self.first] if self.first else self.names
        families = {each: self.family(each).lower() for each in shown}
        known = [kind for kind in METHODS if kind in families.values()]
        others = [kind for kind in dict.fromkeys(families.values()) if kind not in METHODS]
        free = [i for i, kind in enumerate(METHODS) if kind not in known]
        free += range(len(COLOURS), len(COLOURS) + len(others))
        numbers = {kind: METHODS.index(kind) for kind in known} | dict(zip(others, free, strict=False))
        alike = [each for each in shown if families[each] == families[name]]
        return style(numbers[families[name]], alike.index(name))

    def shown(self, curves: Sequence["Curve"]) -> list["Curve"]:
        """Return those curves of one panel that the picture shows."""
        if not self.first:
            return list(curves)
        return sorted((each for each in curves if each.name in self.first), key=lambda c: self.first.index(c.name))[
            :MOST
        ]

    def measured(self, panel: str) -> str:
        """Return what the curves of a panel show."""
        return self.of(panel, "measure") or self.measure

    def of(self, panel: str, name: str) -> str:
        """Return what the first run of a panel says of itself."""
        return next((getattr(run, name, "") for run in self.runs if run.panel == panel), "")

    def only(self, text: str | None) -> "Figure":
        """Return the figure with those runs and searches alone that a text such as "lenet5/adam,lenet5/sgd" selects:
        those that have all words of a part among their own. ValueError if there are none."""
        if text is None:
            return self
        wanted = [set(part.strip().split("/")) for part in text.split(",")]
        runs = [run for run in self.runs if any(part <= _words(run) for part in wanted)]
        if not runs:
            known = sorted(set().union(*map(_words, self.runs)))
            raise ValueError(f"no run of {self.name} has the words {text!r}; its words are {', '.join(known)}")
        searches = [each for each in self.searches if any(part <= _words(each.run) for part in wanted)]
        return replace(self, runs=runs, searches=searches)

    def curves(self, results: Results, axis: str) -> list[Curve]:
        """Return a curve for each panel and name that has points."""
        found: dict[tuple[str, str], dict[float, list[float]]] = {}
        for run in self.runs:
            points = found.setdefault((run.panel, run.name), {})
            seeds = [run.points(row, axis) for row in results.of(run)[: run.seeds]]
            for seed in _in_step(seeds) if axis == "seconds" else seeds:
                for x, y in seed:
                    points.setdefault(x, []).append(y)
        return [Curve(*key, sorted(points.items())) for key, points in found.items() if points]

    def with_results(self, results: Results) -> "Figure":
        """Return the figure without the panels that have no measurements, unless no panel has any."""
        made = {run.panel for run in self.runs if results.of(run)}
        return replace(self, runs=[run for run in self.runs if run.panel in made or not made])

    def smaller(self) -> "Figure":
        """Return the figure as `--quick` makes it; it bears on no claim."""
        runs = [small for run in self.runs if (small := self.quick(run)) is not None]
        return replace(self, runs=runs, claims=())


def _words(run: Any) -> set[str]:
    """Return by which words a run is selected: its own `words`, or its curve's name, model, method and data set."""
    names = ("name", "model", "method", "data")
    return set(getattr(run, "words", ())) or {getattr(run, name) for name in names if hasattr(run, name)}


def _in_step(seeds: Sequence[Points]) -> list[Points]:
    """Place the first points of all seeds at one time, so their second ones, and so on, though no two seeds take the
    same time: the mean over the seeds with the most points (one that diverges has fewer)."""
    longest = [points for points in seeds if len(points) == max(map(len, seeds))]
    times = [mean(x for x, _ in each) for each in zip(*longest, strict=True)]
    return [[(time, y) for time, (_, y) in zip(times, points, strict=False)] for points in seeds]


def load() -> dict[str, Figure]:
    """Return all figures by name."""
    here, found = Path(__file__).resolve().parent, dict[str, Figure]()
    for folder in FOLDERS:
        for path in sorted((here / folder).glob("[!_]*.py")):
            module = import_module(f"reproduction.{folder}.{path.stem}")
            found |= {figure.name: figure for figure in getattr(module, "FIGURES", ())}
    return dict(sorted(found.items()))


def choose(figures: Mapping[str, Figure], name: str) -> Figure:
    """Return a figure by name. ValueError for an unknown one."""
    if name not in figures:
        raise unknown("figure", name, figures)
    return figures[name]


def make(
    figure: Figure, results: Results, setting: Setting, tick: Tick, say: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Make what is not in the results yet, and return what could not be made here, and why. On a GPU all seeds of a run
    are made together, unless its `together` is False, elsewhere they are stored one by one; interrupted, it goes on.
    say: called with a line after each run."""
    missing = [(run, run.lacking(setting)) for run in figure.runs if results.missing(run)]
    todo = list[tuple[Any, list[int]]]()
    for run in (run for run, why in missing if not why):
        seeds = results.missing(run)
        together = setting.device.type == "cuda" and getattr(run, "together", True)
        todo += [(run, seeds)] if together else [(run, [seed]) for seed in seeds]
    for n, (run, seeds) in enumerate(todo):
        if not set(seeds) & set(results.missing(run)):  # made by another with the same config
            continue

        def shown(done: int, total: int, text: str, n: int = n, run: Measurement = run) -> None:
            tick(round(1000 * (n + done / total)), 1000 * len(todo), f"{run.panel}, {run.name}")

        rows = run.make(seeds, setting, shown)
        results.add([{"config": run.config(), "environment": dict(setting.environment), **row} for row in rows])
        say(f"{n + 1} of {len(todo)}: {run.panel}, {run.name}, seed {', '.join(map(str, seeds))}")
    return [f"{run.panel}, {run.name}: {why}" for run, why in missing if why]


def verdicts(figures: Mapping[str, Figure] | None = None) -> list[dict[str, Any]]:
    """Return a row for each claim, by number; one on which several figures bear has what all of them found."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in (load() if figures is None else figures).values():
        for claim in figure.claims:
            row = judged(claim, figure.results, f"python -m reproduction figure {figure.name}")
            found.setdefault(claim.id, []).append(row)
    return [merged(found[claim]) for claim in sorted(found, key=lambda claim: int(claim[1:]))]
