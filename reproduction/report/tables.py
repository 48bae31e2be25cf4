"""What stands below a figure: where its curves end, the settings of its runs, and where they were made."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from altmin.data.registry import DATASETS
from reproduction.figure import Figure
from reproduction.measurement import Measurement, Row
from reproduction.results import Results, words

Table = tuple[list[str], list[list[str]]]
"""The names of the columns, and the rows."""
PARTIAL = "partial file"


def ends(figure: Figure, results: Results) -> Table:
    """Every curve at its last point: the mean over seeds, and their standard deviation; and what the paper states."""
    axis = figure.axes[0]
    curves = [
        [curve.panel, curve.name, f"{curve.points[-1][0]:g}", words(curve.points[-1][1])]
        for curve in figure.curves(results, axis)
    ]
    marks = [
        [mark.panel, f"{'the ' * (mark.source == 'paper')}{mark.source}: {mark.name}", f"{mark.x:g}", f"{mark.y:g}"]
        for mark in figure.marks
    ]
    rows = sorted(curves + marks, key=lambda row: figure.panels.index(row[0]))
    return ["panel", "curve", f"at, in {axis}", figure.measure], rows


def common(figure: Figure) -> dict[str, str]:
    """The settings that all runs share."""
    first, *others = [_flat(run.config()) for run in figure.runs]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def runs(figure: Figure, results: Results) -> Table:
    """A row for each run: how many of its seeds were made, how many of these diverged, and those of its settings that
    not all runs share."""
    shared, rows = common(figure), []
    for run in figure.runs:
        made = results.of(run)[: run.seeds]
        diverged = sum("diverged" in row for row in made)
        seeds = f"{len(made)} of {run.seeds}" + (f", {diverged} diverged" if diverged else "")
        own = [f"{name} {value}" for name, value in _flat(run.config()).items() if name not in shared]
        rows.append([run.panel, run.name, seeds, "; ".join(own)])
    return ["panel", "curve", "seeds", "settings"], rows


def environments(rows: Sequence[Row]) -> Table:
    """Where rows were made: versions and hardware, each once, with the number of its rows."""
    counted = Counter(json.dumps(row.get("environment", {})) for row in rows)
    found = [(json.loads(known), count) for known, count in counted.items()]
    names = list(dict.fromkeys(name for known, _ in found for name in known))
    return [*names, "runs"], [[*(_text(known.get(name)) for name in names), str(count)] for known, count in found]


def samples(rows: Sequence[Row]) -> Table:
    """What rows were trained on: data set, fingerprint, number of rows, and whether these are all that it has."""
    found = dict.fromkeys(
        (str(row["config"].get("data", "")), str(row["data"]), row["rows"], row["config"].get("limit"))
        for row in rows
        if "data" in row and "rows" in row
    )
    table = [[name, mark, f"{count:,}", extent(name, count, limit)] for name, mark, count, limit in found]
    return ["data", "fingerprint", "training rows", "of the data set"], table


def partial(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The data sets that a file used only in part, each with the size of that part."""
    found = dict.fromkeys((name, words) for name, _, _, words in samples(rows)[1] if words.startswith(PARTIAL))
    return list(found)


def extent(name: str, rows: int, limit: int | None = None) -> str:
    """How much of a data set `rows` training rows are. limit: the number that a run requested; None for all.

    >>> extent("higgs", 39_620)
    'partial file: 39,620 of 10,000,000 rows'
    """
    known = DATASETS.get(name)
    if known is None:
        return ""
    total = known.splits["train"]
    if rows < min(total, limit or total):
        return f"{PARTIAL}: {rows:,} of {total:,} rows"
    return f"the first {rows:,} of {total:,} rows" if rows < total else "all"


def made(figure: Figure, results: Results) -> list[Row]:
    """The rows that the figure shows; one that two of its curves share stands once."""
    found = {_key(run, row["seed"]): row for run in figure.runs for row in results.of(run)[: run.seeds]}
    return list(found.values())


def planned(figure: Figure) -> int:
    """The number of rows of a figure that is complete."""
    return len({_key(run, seed) for run in figure.runs for seed in range(run.seeds)})


def _key(run: Measurement, seed: int) -> tuple[str, int]:
    return json.dumps(run.config()), seed


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings as words, those within others by both names, as "options.lr"."""
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = _text(value)
    return found


def _text(value: Any) -> str:
    """A setting in words; whole numbers that follow one another as "1 to 50"."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        if len(value) > 2 and all(isinstance(n, int) for n in value) and all(b == a + 1 for a, b in pairwise(value)):
            return f"{value[0]} to {value[-1]}"
        return ", ".join(map(_text, value)) or "none"
    return str(value)
