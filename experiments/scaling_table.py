"""The tables of docs/scaling-cost.md, from the files of benchmarks/scaling."""

from collections.abc import Callable, Sequence
from pathlib import Path

from common import Row, fill, ratio, read, table

WORDS = {
    "am": "AM, one process",
    "am data-parallel": "AM, data-parallel",
    "am layer-parallel": "AM, layer-parallel",
    "backprop": "backprop with Adam, one process",
    "backprop DDP": "backprop, DistributedDataParallel",
    "backprop 1F1B": "backprop, pipeline 1F1B",
    "backprop zero bubble": "backprop, pipeline with interleaved zero bubble",
    "am-mem-fitted": "AM with memory, data-parallel",
}
METHODS = {"am": "AM-Adam", "am-mem-fitted": "AM-mem", "backprop": "backprop"}

Filled = tuple[list[str], list[list[str]]]


def times(rows: Sequence[Row]) -> Filled:
    head = ["width, rows", "a step by", "processes", "milliseconds (quartiles)", "over one process (quartiles)"]
    head.append("gradients differ by")
    return head, [
        [
            f"{row['width']}, {row['batch']:,}",
            WORDS[row["what"]],
            str(row["ranks"]),
            "{median:.1f} ({q1:.1f} to {q3:.1f})".format(**row["milliseconds"]),
            "1" if row["ranks"] == 1 else ratio(row["over_one"]),
            "" if row["difference"] is None else f"{row['difference']:.0e}",
        ]
        for row in rows
    ]


def sent(rows: Sequence[Row]) -> Filled:
    head = [
        "model",
        "method",
        "messages",
        "bytes in them",
        "by the model",
        "sent by a rank, by the model",
        "on the wire",
    ]
    return head, [
        [
            f"{row['model']}, {row['dtype']}" if "model" in row else f"mlp, {row['what']}, both ranks",
            METHODS[row["method"]],
            f"{row['messages']:g}" if "messages" in row else "",
            f"{row['bytes']:,.0f}",
            f"{row['model_bytes']:,.0f}",
            f"{row.get('model_sent', row['model_bytes']):,.0f}",
            f"{row['on_the_wire']:,.0f}",
        ]
        for row in rows
    ]


def paper(rows: Sequence[Row]) -> Filled:
    head = [
        "model",
        "step",
        "GPUs",
        "milliseconds",
        "compute",
        "scalars",
        "batch norm",
        "gradients, memories",
        "efficiency",
    ]
    shown = []
    for row in rows:
        if row["gpus"] == 1:
            continue
        parts = row.get("parts")
        each = [f"{1e3 * parts[p]:.2f}" for p in ("compute", "numbers", "norms", "bulk")] if parts else [""] * 4
        what = "AM, data-parallel" if row["what"] == "am" else WORDS[row["what"]]
        shown.append(
            [row["model"], what, f"{row['gpus']:,}", f"{1e3 * row['seconds']:.2f}", *each, f"{row['efficiency']:.0%}"]
        )
    return head, shown


TABLES: dict[str, Callable[[Sequence[Row]], Filled]] = {"time": times, "bytes": sent, "paper": paper}


def text(part: str, folder: Path) -> str:
    return table(*TABLES[part](read(folder / f"{part}.jsonl")))


def fill_tables(document: Path, folder: Path) -> None:
    for part in TABLES:
        if (folder / f"{part}.jsonl").exists():
            fill(document, text(part, folder), f"scaling-{part}")
