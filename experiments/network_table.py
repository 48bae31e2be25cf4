"""The tables of docs/networks-measured.md, from the files of `experiments/networks.py`, with their targets."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from common import Row, fill, table
from network_cost_table import cost
from network_rows import known
from network_words import against, machines

CLOSE, ACCURATE, LOSS_RATIO = 0.01, 0.93, 1.02
"""Targets: by how much AM's accuracy may be below backprop's, what it must reach on CIFAR-10, and the ratio of losses
of a GPT after 600 and 3,000 steps; in the first `EARLY` steps AM must be ahead."""
EARLY = 120

Found = list[float | None]


class Runs:
    """Training rows, gathered over seeds."""

    def __init__(self, rows: Sequence[Row]):
        self.rows = [row for row in rows if row["method"] in ("am", "backprop")]

    def where(self, method: str | None = None, model: str | None = None, **config: Any) -> "Runs":
        """The runs of a method and a model with these entries of their config."""
        return Runs(
            [
                row
                for row in self.rows
                if method in (None, row["method"])
                and model in (None, row["model"])
                and all(row["config"].get(name) == value for name, value in config.items())
            ]
        )

    def values(self, of: Callable[[Row], Any]) -> list[Any]:
        """What there is, each once, in the order of the file."""
        found = {json.dumps(value): value for value in map(of, self.rows)}
        return list(found.values())

    def at(self, measure: str, **place: int) -> Found:
        """By seed, a measure after a batch or an epoch (none: at the end); None for a run that diverged before."""
        found: Found = []
        for row in sorted(self.rows, key=lambda row: row["seed"]):
            there = [each for each in row["rows"] if all(each.get(name) == value for name, value in place.items())]
            diverged = "diverged" in row and (not place or not there)
            found.append(None if diverged or not there else there[-1].get(measure))
        return found


def mean(values: Found) -> float | None:
    """Over seeds; None if there are none, or one diverged."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def words(values: Found) -> str:
    """Mean and standard deviation of seeds."""
    center = mean(values)
    if center is None:
        return "diverged" if values else ""
    return (
        f"{center:.4f} ± {stdev(v for v in values if v is not None):.4f}"
        if len(values) > 1
        else f"{center:.4f}, one seed"
    )


def difference(ours: Found, theirs: Found, target: float = CLOSE) -> list[str]:
    """Two cells: how far AM is from backprop, and whether it is within the target."""
    a, b = mean(ours), mean(theirs)
    if a is None or b is None:
        return ["", ""]
    return [f"{a - b:+.4f}", "met" if a - b >= -target else "missed"]


def variant(config: Row) -> str:
    return f"AM, {config['order']}, share {config['share']:g}"


def resnet(rows: Sequence[Row]) -> str:
    """Test accuracy at the end, and along the epochs."""
    runs, lines, along = Runs(rows), [], []
    shared = ("batch_size", "epochs", "precision", "whole", "lr")
    for model, setting in runs.values(lambda row: [row["model"], {name: row["config"][name] for name in shared}]):
        every = runs.where(model=model, **setting)
        backprop = every.where("backprop")
        samples = "50,000" if setting["whole"] else "40,000"
        first = [model, samples, str(setting["batch_size"]), str(setting["epochs"]), setting["precision"]]
        lines.append([*first, "backprop", words(backprop.at("test_accuracy")), "", "", ""])
        shown = sorted({1, 2, 4, 8, setting["epochs"]})
        shown = [epoch for epoch in shown if epoch <= setting["epochs"]]
        along += [[model, "backprop", _places(backprop, "epoch", shown, "test_accuracy")]]
        for share, order in every.where("am").values(lambda row: [row["config"]["share"], row["config"]["order"]]):
            am = every.where("am", share=share, order=order)
            ours, theirs = am.at("test_accuracy"), backprop.at("test_accuracy")
            reached = mean(ours)
            verdict = "" if reached is None else "met" if reached >= ACCURATE else "missed"
            name = variant({"share": share, "order": order})
            lines.append([*first, name, words(ours), verdict, *difference(ours, theirs)])
            along += [[model, name, _places(am, "epoch", shown, "test_accuracy")]]
    head = ["net", "samples", "batch", "epochs", "precision", "method", "test accuracy", f"at least {ACCURATE}"]
    return (
        table([*head, "AM - backprop", f"at least -{CLOSE}"], lines)
        + "\nTest accuracy after an epoch, mean of seeds:\n\n"
        + table(["net", "method", "epoch: accuracy"], along)
    )


def _places(runs: Runs, place: str, shown: Sequence[int], measure: str) -> str:
    found = [(at, mean(runs.at(measure, **{place: at}))) for at in shown]
    return ", ".join(f"{at}: {value:.4f}" for at, value in found if value is not None)


def gpt(rows: Sequence[Row]) -> str:
    """Validation loss along the steps at the rate that was best at seed 0, and its ratio to backprop's."""
    runs, lines, tried = Runs(rows), [], []
    steps = sorted({step for row in runs.rows for step in row["config"]["evaluate"]})
    for model in runs.values(lambda row: row["model"]):
        backprop, of_backprop = best_rate(runs.where("backprop", model))
        cells = [f"{value:.4f}" if value else "" for value in _losses(backprop, steps)]
        lines.append([model, "backprop", f"{of_backprop:g}", *cells, words(backprop.at("test_loss"))])
        tried.append([model, "backprop", _rates(runs.where("backprop", model))])
        for share, order in runs.where("am", model).values(lambda row: [row["config"][k] for k in ("share", "order")]):
            every = runs.where("am", model, share=share, order=order)
            am, rate = best_rate(every)
            name = variant({"share": share, "order": order})
            ours, theirs = _losses(am, steps), _losses(backprop, steps)
            cells = [f"{value:.4f}" if value else "" for value in ours]
            lines.append([model, name, f"{rate:g}", *cells, words(am.at("test_loss"))])
            judged = [_judged(step, a, b) for step, a, b in zip(steps, ours, theirs, strict=True)]
            lines.append([model, "its loss / backprop's", "", *judged, ""])
            tried.append([model, name, _rates(every)])
    head = ["net", "method", "rate", *(f"{step:,} steps" for step in steps), "test loss at the end"]
    return (
        table(head, lines)
        + "\nThe rates tried, and the last validation loss of seed 0 with each:\n\n"
        + table(["net", "method", "rate: loss"], tried)
    )


def best_rate(runs: Runs) -> tuple[Runs, float]:
    """The runs at the rate whose last validation loss is the lowest at seed 0, and the rate."""
    first = {row["config"]["lr"]: _last(row) for row in runs.rows if row["seed"] == 0} or {
        row["config"]["lr"]: _last(row) for row in runs.rows
    }
    rate = min(first, key=lambda rate: first[rate], default=float("nan"))
    return runs.where(lr=rate), rate


def _last(row: Row) -> float:
    return float("inf") if "diverged" in row else row["rows"][-1]["validation_loss"]


def _rates(runs: Runs) -> str:
    found = sorted((row["config"]["lr"], _last(row)) for row in runs.rows if row["seed"] == 0)
    return ", ".join(f"{rate:g}: {loss:.4f}" for rate, loss in found)


def _losses(runs: Runs, steps: Sequence[int]) -> Found:
    return [mean(runs.at("validation_loss", batch=step)) for step in steps]


def _judged(step: int, ours: float | None, theirs: float | None) -> str:
    if ours is None or theirs is None:
        return ""
    met = ours < theirs if step <= EARLY else ours <= LOSS_RATIO * theirs
    target = "below 1" if step <= EARLY else f"at most {LOSS_RATIO}"
    return f"{ours / theirs:.4f} ({target}: {'met' if met else 'missed'})"


def residual(rows: Sequence[Row]) -> str:
    """Test accuracy at every depth and width, with the time of a step over backprop's."""
    runs, lines = Runs(rows), []
    models = runs.values(lambda row: row["model"])
    for model in sorted(models, key=lambda name: [int(n) for n in reversed(name.partition("-")[2].split("x"))]):
        depth, width = model.partition("-")[2].split("x")
        ours, theirs = (runs.where(name, model).at("test_accuracy") for name in ("am", "backprop"))
        timed = [_time(rows, model, mode) for mode in ("eager", "graph")]
        lines.append([width, depth, words(theirs), words(ours), *difference(ours, theirs), *timed])
    head = ["width", "depth", "backprop", "AM", "AM - backprop", f"at least -{CLOSE}"]
    return table([*head, "step time / backprop's, eager", "both recorded"], lines)


def _time(rows: Sequence[Row], model: str, mode: str) -> str:
    found = [
        against(each["over_backprop"][mode])
        for row in rows
        if row["method"] == "time" and row["model"] == model
        for each in row["results"]
        if (each["method"], each["mode"]) == ("am", mode) and mode in each["over_backprop"]
    ]
    return found[-1] if found else ""


def dial(rows: Sequence[Row]) -> str:
    """Along share and order with the library's cuts; and along the grain of the cuts with one share."""
    runs, text = Runs(rows), ""
    for model in runs.values(lambda row: row["model"]):
        measure = "validation_loss" if model.startswith("gpt") else "test_accuracy"
        own = runs.where(model=model)
        backprop, usual = words(own.where("backprop").at(measure)), own.where("am", grain="residual")
        shares, orders = (
            sorted(usual.values(lambda row, name=name: row["config"][name])) for name in ("share", "order")
        )
        lines = [
            [order, backprop, *(words(usual.where(order=order, share=share).at(measure)) for share in shares)]
            for order in orders
        ]
        text += f"{model}, {measure.replace('_', ' ')}:\n\n"
        text += table(["order", "backprop", *(f"share {share:g}" for share in shares)], lines) + "\n"
        lines = []
        for grain, blocks in own.where("am", share=0.1).values(lambda row: [row["config"]["grain"], row["blocks"]]):
            found = own.where("am", share=0.1, grain=grain)
            cells = [words(found.where(order=order).at(measure)) for order in orders]
            lines.append([grain, str(blocks), *cells])
        lines.sort(key=lambda line: int(line[1]))
        text += table(["cuts", "blocks", *(f"{order}, share 0.1" for order in orders)], lines) + "\n"
    return text


PARTS: dict[str, Callable[[Sequence[Row]], str]] = {
    "resnet": resnet,
    "gpt": gpt,
    "residual": residual,
    "dial": dial,
    "cost": cost,
}


def part(name: str, folder: Path) -> str:
    """What stands in the document for a part: its tables, or how to make its file."""
    path = folder / f"{name}.jsonl"
    rows = [row for row in known(path) if row["config"].get("limit") is None]
    if not rows:
        command, file = f"python experiments/networks.py {name}", f"benchmarks/networks/{name}.jsonl"
        return f"\nNot measured yet: `{command}` writes `{file}`.\n\n"
    source = f"{machines(rows)}; from [{path.name}](../benchmarks/networks/{path.name})."
    return f"\n{source}\n\n{PARTS[name](rows)}\n"


def fill_tables(document: Path, folder: Path) -> int:
    """Every part between its marks in the document."""
    whole = document.read_text() if document.exists() else ""
    for name in PARTS:
        if not 0 <= whole.find(f"<!-- {name}:begin -->") < whole.find(f"<!-- {name}:end -->"):
            print(
                f"networks.py: {document} has no place for {name}; put the lines <!-- {name}:begin --> and "
                f"<!-- {name}:end --> where it should be",
                file=sys.stderr,
            )
            return 2
    for name in PARTS:
        fill(document, part(name, folder), name)
    print(f"wrote {document.name}")
    return 0
