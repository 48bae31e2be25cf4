"""Figures of experiments/networks.py in words: machines, ratios, targets."""

from collections.abc import Sequence

from common import Row, ratio


def machine(row: Row) -> str:
    about = row["environment"]
    return about["gpu"] or f"{about['cpu']}, {about['threads']} threads"


def machines(rows: Sequence[Row]) -> str:
    """The machines of the rows, each once."""
    return "; ".join(dict.fromkeys(map(machine, rows)))


def against(spread: Row, target: float | None = None) -> str:
    """A ratio with its quartiles and, where there is a target, whether it is met, before it is rounded."""
    if target is None:
        return ratio(spread)
    return f"{ratio(spread)}, {'met' if spread['median'] <= target else 'missed'}"
