"""The result of `speed` as a table, in the order of its rows; columns in which nothing varies are left out."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

Row = Mapping[str, Any]
Columns = dict[str, Callable[[Row], str]]


def table(result: Mapping[str, Any]) -> Table:
    """Times as median and, in brackets, the quartiles; below, which backprop was the fastest on each net."""
    words, numbers = _words(result), _numbers(result)
    best = dict.fromkeys(f"{row['net']}: {row['best_backprop']}" for row in result["results"] if row["members"] == 1)
    caption = f"best backprop on {'; on '.join(best)}" if _has_rivals(result["results"]) else None
    drawn = Table(*words, header_style="bold", caption=caption, caption_justify="left")
    for name in numbers:
        drawn.add_column(name, justify="right")
    for _, rows in groupby(result["results"], key=lambda row: (row["net"], row["mode"], row.get("size"))):
        drawn.add_section()
        for row in rows:
            drawn.add_row(*(cell(row) for cell in (words | numbers).values()))
    return drawn


def spread(values: Mapping[str, float] | None, digits: int = 2, unit: float = 1.0) -> str:
    """Median and quartiles; nothing where nothing was measured.

    >>> spread({"median": 1.5, "q1": 1.25, "q3": 2.0})
    '1.50 (1.25 to 2.00)'
    """
    if values is None:
        return ""
    median, low, high = (f"{values[name] / unit:.{digits}f}" for name in ("median", "q1", "q3"))
    return f"{median} ({low} to {high})"


def _has_rivals(rows: Sequence[Row]) -> bool:
    """Whether backprop was measured in several ways."""
    return len({row["mode"] for row in rows}) > 1 or bool(rows[0]["ratio_to_variants"])


def _words(result: Mapping[str, Any]) -> Columns:
    rows, grow = result["results"], result["config"]["grow"]
    columns: Columns = {"model": lambda row: row["net"]}
    if grow is not None:
        columns[grow] = lambda row: f"{row['size']:,}"
    if len({row["mode"] for row in rows}) > 1:
        columns["mode"] = lambda row: row["mode"]
    columns["method"] = lambda row: row["method"]
    if grow != "members" and len({row["members"] for row in rows}) > 1:
        columns["members"] = lambda row: str(row["members"])
    return columns


def _numbers(result: Mapping[str, Any]) -> Columns:
    rows, yardstick = result["results"], result["config"]["yardstick"]
    columns: Columns = {"ms per step": lambda row: spread(row["step_seconds"], 3, 1e-3)}
    if result["config"].get("samples") is not None:
        columns["s per pass"] = lambda row: spread(row["step_seconds"], 2, 1 / row["steps_per_round"])
    columns[f"time / {yardstick}"] = lambda row: spread(row["time_ratio"])
    if _has_rivals(rows):
        columns["time / best backprop"] = lambda row: spread(row["ratio_to_best"])
    if len({row["members"] for row in rows}) > 1:
        columns["time / 1 member"] = lambda row: spread(row["ratio_to_one_member"])
        columns["ms per member"] = lambda row: f"{1e3 * row['member_step_seconds']['median']:.4f}"
    return columns | {
        "samples / s": lambda row: f"{row['samples_per_second']:,.0f}",
        "MB kept": lambda row: f"{row['kept_bytes'] / 1e6:.2f}",
        "MB at peak": lambda row: f"{row['peak_bytes'] / 1e6:.2f}",
        f"memory / {yardstick}": lambda row: f"{row['memory_ratio']:.2f}",
    }
