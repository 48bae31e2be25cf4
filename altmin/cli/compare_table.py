"""The table of `altmin compare`, from its result alone."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from altmin.paper.bench.cases import YARDSTICK

EARLY = 50
Run = Mapping[str, Any]
Column = tuple[Callable[[Run], float | None], int]
"""A number of a run, and its digits."""


def table(result: Mapping[str, Any]) -> Table:
    """One row for each method; with several seeds each cell is their mean ± standard deviation."""
    seeds = f", {len(result['seeds'])} seeds: mean ± standard deviation" if len(result["seeds"]) > 1 else ""
    title = f"{result['config']['evaluated_on']} accuracy on {result['data']}, {result['model']}{seeds}"
    columns = _columns(result)
    drawn = Table("method", title=title, title_justify="left", header_style="bold")
    for name in columns:
        drawn.add_column(name, justify="right")
    for method in result["methods"]:
        runs = [run for run in result["runs"] if run["method"] == method]
        if any("diverged" in run for run in runs):
            drawn.add_row(method, "diverged", style="red")
        else:
            drawn.add_row(method, *(_cell([f(run) for run in runs], digits) for f, digits in columns.values()))
    return drawn


def _columns(result: Mapping[str, Any]) -> dict[str, Column]:
    measure, epochs = f"{result['config']['evaluated_on']}_accuracy", result["config"]["epochs"]
    columns: dict[str, Column] = {}
    if EARLY in result["config"]["eval_batches"]:
        columns[f"{EARLY} batches"] = lambda run: {row["batch"]: row[measure] for row in run["batches"]}[EARLY], 4
    for n in _spread_out(epochs, 4):
        columns[f"epoch {n}"] = lambda run, n=n: run["epochs"][n - 1][measure], 4  # type: ignore[misc]
    columns["best"] = lambda run: max(row[measure] for row in run["epochs"]), 4
    columns["train loss"] = lambda run: run["epochs"][-1]["train_loss"], 4
    columns["seconds"] = _seconds, 1
    if YARDSTICK in result["methods"]:
        adam = [run for run in result["runs"] if run["method"] == YARDSTICK and "diverged" not in run]
        times = {run["seed"]: _seconds(run) for run in adam}
        columns[f"time / {YARDSTICK}"] = (
            lambda run: _seconds(run) / times[run["seed"]] if run["seed"] in times else None,
            2,
        )
    return columns


def _spread_out(epochs: int, most: int) -> list[int]:
    """At most `most` of the epochs, with the first and the last.

    >>> _spread_out(3, 4), _spread_out(50, 4)
    ([1, 2, 3], [1, 17, 34, 50])
    """
    count = min(epochs, most)
    return sorted({round(1 + i * (epochs - 1) / max(1, count - 1)) for i in range(count)})


def _seconds(run: Run) -> float:
    return sum(row["seconds"] for row in run["epochs"])


def _cell(values: Sequence[float | None], digits: int) -> str:
    """Mean ± standard deviation of the values that there are."""
    known = [value for value in values if value is not None]
    spread = f" ± {stdev(known):.{digits}f}" if len(known) > 1 else ""
    return f"{mean(known):.{digits}f}{spread}" if known else ""
