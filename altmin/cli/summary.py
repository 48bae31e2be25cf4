"""The table of `altmin compare`, from its result alone."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from rich.table import Table

YARDSTICK = "adam"
EARLY = 50


def table(result: Mapping[str, Any]) -> Table:
    """One row for each method; with several seeds each cell is their mean ± standard deviation."""
    measure, epochs = f"{result['config']['evaluated_on']}_accuracy", result["config"]["epochs"]
    shown = _spread_out(epochs, 4)
    early = EARLY in result["config"]["eval_batches"]
    seconds = {(run["method"], run["seed"]): _seconds(run) for run in result["runs"] if "diverged" not in run}
    seeds = f", {len(result['seeds'])} seeds: mean ± standard deviation" if len(result["seeds"]) > 1 else ""
    title = f"{measure.replace('_', ' ')} on {result['data']}, {result['model']}{seeds}"
    head = [
        *([f"{EARLY} batches"] if early else []),
        *(f"epoch {epoch}" for epoch in shown),
        *("best", "train loss", "seconds"),
        *([f"time / {YARDSTICK}"] if YARDSTICK in result["methods"] else []),
    ]
    drawn = Table("method", title=title, title_justify="left", header_style="bold")
    for name in head:
        drawn.add_column(name, justify="right")
    for method in result["methods"]:
        runs = [run for run in result["runs"] if run["method"] == method]
        if any("diverged" in run for run in runs):
            drawn.add_row(method, "diverged", style="red")
            continue
        cells = [
            *([_cell([_at(run["batches"], "batch", EARLY, measure) for run in runs], 4)] if early else []),
            *(_cell([_at(run["epochs"], "epoch", n, measure) for run in runs], 4) for n in shown),
            _cell([max(row[measure] for row in run["epochs"]) for run in runs], 4),
            _cell([run["epochs"][-1]["train_loss"] for run in runs], 4),
            _cell([_seconds(run) for run in runs], 1),
        ]
        if YARDSTICK in result["methods"]:
            pairs = [(seconds[method, run["seed"]], seconds.get((YARDSTICK, run["seed"]))) for run in runs]
            ratios = [own / yardstick for own, yardstick in pairs if yardstick]
            cells.append(_cell(ratios, 2) if ratios else "")
        drawn.add_row(method, *cells)
    return drawn


def _spread_out(epochs: int, most: int) -> list[int]:
    """At most `most` of the epochs, with the first and the last.

    >>> _spread_out(3, 4), _spread_out(50, 4)
    ([1, 2, 3], [1, 17, 34, 50])
    """
    count = min(epochs, most)
    return sorted({round(1 + i * (epochs - 1) / max(1, count - 1)) for i in range(count)})


def _at(rows: Sequence[Mapping[str, Any]], key: str, number: int, measure: str) -> float:
    return next(row[measure] for row in rows if row[key] == number)


def _seconds(run: Mapping[str, Any]) -> float:
    return sum(row["seconds"] for row in run["epochs"])


def _cell(values: Sequence[float], digits: int) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"
