"""Settings that a search has chosen: figures take them from its history, or from the best of it in the package."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

from reproduction import folders
from reproduction.measurement import Row
from reproduction.results import Results


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
    a model and data, the first of equal ones; `default` where nothing was searched. Only what was evaluated as the last
    row was counts: a search of other epochs made before is out of date. config: further entries of the run's config,
    where a figure has several searches of one method, model and data."""
    wanted = {"method": method, "model": model, "data": data, **config}
    known = [row for row in _rows(folders.CHOSEN) if row["figure"] == figure]
    known += _rows(folders.history(folders.RESULTS, figure))
    rows = [row for row in known if all(row["config"].get(name) == value for name, value in wanted.items())]
    if not rows:
        return dict(default)
    chosen = best([row for row in rows if judged_alike(row, rows[-1])])
    return {**chosen["config"]["options"], **chosen["options"]}


def best(rows: Sequence[Row]) -> Row:
    """The row of the best mean over seeds, the first of equal ones."""
    return max(rows, key=lambda row: mean(row["accuracy"]))


def judged_alike(a: Row, b: Row) -> bool:
    """Whether two configurations were trained and evaluated in the same way, so that their accuracies can be
    compared."""
    return all(a[name] == b[name] for name in ("config", "at_batch", "seeds"))


def chosen(figure: str, rows: Sequence[Row]) -> list[Row]:
    """What the package keeps of a figure's history: of rows evaluated alike the best one, the latest search last."""
    last = [row for n, row in enumerate(rows) if not any(judged_alike(row, other) for other in rows[n + 1 :])]
    kept = [best([row for row in rows if judged_alike(row, one)]) for one in last]
    return [{"figure": figure, **{key: row[key] for key in History.keys}} for row in kept]


def _rows(path: Path) -> list[Row]:
    """Those of a file; none if it is not there. A figure asks once for each of its runs, so they are kept until the
    file changes."""
    if not path.exists():
        return []
    stamp = path.stat()
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, modified: int, size: int) -> list[Row]:
    return History.read(path).rows
