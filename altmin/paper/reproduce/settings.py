"""Settings that a search has chosen. They are kept nowhere but in its history, from which figures take them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

from altmin.paper.reproduce import folders
from altmin.paper.reproduce.measurement import Row
from altmin.paper.reproduce.results import Results


class History(Results):
    """Rows of configurations: "config" of the run with those options that were fixed, "at_batch", the "options" that
    were tried, their number as "trial", and the validation "accuracy" of each of the "seeds"."""

    keys = ("config", "at_batch", "seeds", "options", "accuracy")


def settings(
    figure: str,
    *,
    method: str,
    model: str,
    data: str = "mnist",
    default: Mapping[str, Any],
    **config: Any,
) -> dict[str, Any]:
    """The options with the best validation accuracy, mean over seeds, that a figure's search has found for a method on
    a model and data, the first of equal ones; `default` where nothing was searched. Only what was judged as the last
    row was counts: a search of other epochs made before is out of date. config: further entries of the run's config,
    where a figure has several searches of one method, model and data."""
    path = folders.history(folders.RESULTS, figure)
    if not path.exists():
        return dict(default)
    wanted = {"method": method, "model": model, "data": data, **config}
    stamp = path.stat()
    rows = [
        row
        for row in _rows(path, stamp.st_mtime_ns, stamp.st_size)
        if all(row["config"].get(name) == value for name, value in wanted.items())
    ]
    if not rows:
        return dict(default)
    chosen = best([row for row in rows if judged_alike(row, rows[-1])])
    return {**chosen["config"]["options"], **chosen["options"]}


def best(rows: Sequence[Row]) -> Row:
    """The row of the best mean over seeds, the first of equal ones."""
    return max(rows, key=lambda row: mean(row["accuracy"]))


def judged_alike(a: Row, b: Row) -> bool:
    """Whether two configurations were trained and judged in the same way, so that their accuracies can be compared."""
    return all(a[name] == b[name] for name in ("config", "at_batch", "seeds"))


@lru_cache(maxsize=4)
def _rows(path: Path, modified: int, size: int) -> list[Row]:
    """A figure asks once for each of its runs; the file is read again when it has changed."""
    return History.read(path).rows
