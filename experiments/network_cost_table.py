"""The tables of time and memory in docs/networks-measured.md."""

from collections.abc import Sequence

from common import Row, table
from network_words import against, machine

TARGETS = {
    ("cpu", "residual"): 2.2,
    ("cpu", "resnet18"): 2.5,
    ("cpu", "gpt"): 2.5,
    ("cuda", "eager"): 2.5,
    ("cuda", "graph"): 1.8,
}
"""Of the time of AM's step over backprop's: on two cores by the kind of net, on a GPU by the mode."""
MEMORY = 1.3


def cost(rows: Sequence[Row]) -> str:
    """Time of a step over backprop's in the same mode and in others; then the most memory that a step needs."""
    times, memory = [], []
    for row in rows:
        first = [row["model"], str(row["config"]["batch_size"]), _place(row), row["config"]["precision"]]
        found = {(each["method"], each["mode"]): each for each in row["results"]}
        for (method, mode), each in found.items():
            if method == "am":
                times.append([*first, mode, *_time(row, each, mode)])
        times += [
            [*first, each["mode"], f"left out: {each['reason']}", "", "", ""]
            for each in row["skipped"]
            if each["method"] == "am"
        ]
        memory += _memory(first, found)
    head = ["net", "batch", "machine", "precision", "mode", "AM / backprop, same mode", "target"]
    text = table([*head, "/ backprop, eager", "/ backprop, compiled"], times)
    if memory:
        head = ["net", "batch", "machine", "precision", "mode", "backprop, MB", "AM / backprop", f"at most {MEMORY}"]
        more = ["checkpointed / backprop", "its time / backprop's"]
        text += "\nThe most memory that a step needs, weights and moments with it:\n\n" + table([*head, *more], memory)
    return text


def _place(row: Row) -> str:
    return machine(row) if row["config"]["device"] == "cuda" else f"{row['environment']['threads']} threads"


def _time(row: Row, each: Row, mode: str) -> list[str]:
    device, over = row["config"]["device"], each["over_backprop"]
    target = TARGETS.get((device, mode if device == "cuda" else row["model"].partition("-")[0]))
    cells = [against(over[mode], target) if mode in over else "", "" if target is None else f"{target:g}"]
    return cells + [against(over[other]) if other in over and other != mode else "" for other in ("eager", "compile")]


def _memory(first: Sequence[str], found: dict[tuple[str, str], Row]) -> list[list[str]]:
    """A line for every mode in which both were counted; what checkpointing needs stands beside the eager one."""
    lines = []
    for (method, mode), each in found.items():
        other = found.get(("backprop", mode))
        if method != "am" or other is None or "peak_bytes" not in each:
            continue
        ratio = each["peak_bytes"] / other["peak_bytes"]
        line = [
            *first,
            mode,
            f"{other['peak_bytes'] / 1e6:,.1f}",
            f"{ratio:.2f}",
            "met" if ratio <= MEMORY else "missed",
        ]
        again = found.get(("checkpointed", mode))
        if again is None:
            lines.append([*line, "", ""])
        else:
            less = f"{again['peak_bytes'] / other['peak_bytes']:.2f}"
            lines.append([*line, less, against(again["over_backprop"][mode])])
    return lines
