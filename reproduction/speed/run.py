"""Measures methods on nets. On one net all methods in all modes take turns, so that any two of its rows compare."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from altmin import data, methods, models
from altmin.methods import Method
from reproduction.results import Row
from reproduction.speed import modes
from reproduction.speed.measure import Batch, spread, step_bytes, step_seconds, synthetic

PERIODS = {"am-mem": 40, "coactivation": 40}
"""Methods some of whose steps cost more, and after how many such a step comes again."""
YARDSTICK = "adam"
"""The method that every other one is measured against."""


class Net(NamedTuple):
    """A model, the data set whose shape its samples have, and the batch size. text: the net as the user wrote it."""

    text: str
    model: str
    data: str
    batch_size: int

    @classmethod
    def parse(cls, text: str) -> "Net":
        """Read NAME, NAME@DATA, NAME:BATCH or NAME@DATA:BATCH; without them on MNIST in batches of 200.

        >>> Net.parse("elman-15@mnist-sequential:1024")[1:]
        ('elman-15', 'mnist-sequential', 1024)
        """
        name, _, batch = text.partition(":")
        model, _, own = name.partition("@")
        return cls(text, model, own or "mnist", int(batch or 200))

    def batches(self, device: torch.device) -> list[Batch]:
        known = data.dataset(self.data)
        return synthetic(known.sample_shape, known.classes, self.batch_size, device, tokens=known.tokens)


class Variant(NamedTuple):
    """A method with options; the label tells it from other variants of the same method."""

    label: str
    method: str
    options: Mapping[str, Any]


class Entry(NamedTuple):
    """One thing to measure on a net: a variant, by its label, and the mode in which it runs."""

    method: str
    mode: str


class Plan(NamedTuple):
    """Measurements of every net: each variant in each mode. of_backprop: further modes, in which the yardstick and
    its variants alone are measured; compiled, other methods too that can be. samples: how many a pass over the data
    has, if whole passes are measured. precision: of products."""

    variants: Sequence[Variant]
    modes: Sequence[str]
    of_backprop: Sequence[str]
    seed: int
    device: torch.device
    samples: int | None = None
    precision: str = "float32"

    @property
    def rivals(self) -> list[str]:
        """The labels of the yardstick and its variants."""
        return [each.label for each in self.variants if each.method == YARDSTICK]

    def make(self, net: Net, entry: Entry) -> Method:
        """Return an entry that can step. ValueError or TypeError with the reason where it cannot run so."""
        variant = next(variant for variant in self.variants if variant.label == entry.method)
        known = data.dataset(net.data)
        torch.manual_seed(self.seed)
        model = models.create(net.model, known.sample_shape, known.classes, known.tokens).to(self.device)
        method: Any = modes.apply(entry.mode, methods.create(variant.method, model, **variant.options))
        if self.precision == "bf16":
            method.step = torch.autocast(self.device.type, torch.bfloat16)(method.step)
        return method

    def entries(self) -> list[Entry]:
        labels = [each.label for each in self.variants]
        found = [Entry(label, mode) for mode in self.modes for label in labels]
        return found + [
            Entry(label, mode) for mode in self.of_backprop for label in (labels if mode == "compile" else self.rivals)
        ]


def measure(
    plan: Plan, nets: Sequence[Net], seconds: float, report: Callable[[float, str], None]
) -> tuple[list[Row], list[Row]]:
    """Return a row for each entry of each net, and one for each that was left out, with the reason, which a warning
    says too. seconds: about how long to measure in all. report: called with the part of the work that is done, and the
    net."""
    rows, skipped = list[Row](), list[Row]()
    for i, net in enumerate(nets):

        def of_all(part: float, i: int = i, net: Net = net) -> None:
            report((i + part) / len(nets), f"{net.model}, batches of {net.batch_size}")

        rows += _measure_net(plan, net, seconds / len(nets), of_all, skipped)
    if not rows:
        raise ValueError(f"nothing can be measured: {skipped[0]['reason']}")
    times = [(row["model"], row["step_seconds"]) for row in rows if row["method"] == YARDSTICK]
    if unsteady := dict.fromkeys(model for model, time in times if time["q3"] > 1.5 * time["q1"]):
        warnings.warn(f"the times of {YARDSTICK} vary by more than a half on {', '.join(unsteady)}: measure again")
    return rows, skipped


def _measure_net(
    plan: Plan, net: Net, seconds: float, report: Callable[[float], None], skipped: list[Row]
) -> list[Row]:
    """Return a row for each entry of a net; add those that cannot run, or lack their yardstick, to `skipped`."""
    torch.compiler.reset()  # eight versions of a function are compiled, further ones run as they are
    batches, entries = net.batches(plan.device), plan.entries()
    built, sizes = dict[Entry, Method](), dict[Entry, tuple[int, int]]()
    for entry in entries:
        make, plain = partial(plan.make, net, entry), partial(plan.make, net, entry._replace(mode="eager"))
        try:
            built[entry], *both = step_bytes(make, batches[0], plain, "graph" in entry.mode)
        except (ValueError, TypeError, RuntimeError) as error:
            skipped.append({"net": net.text, **entry._asdict(), "reason": str(error).splitlines()[0]})
            if entry.mode in plan.modes or entry.method in plan.rivals:
                warnings.warn(f"{entry.method} is not measured in mode {entry.mode}: {skipped[-1]['reason']}")
        else:
            sizes[entry] = (both[0], both[1])
    built = {entry: method for entry, method in built.items() if entry._replace(method=YARDSTICK) in built}
    if not built:
        return []
    per_pass = None if plan.samples is None else -(-plan.samples // net.batch_size)
    period = max(PERIODS.get(variant.method, 1) for variant in plan.variants)
    times, steps = step_seconds(built, batches, seconds, plan.seed, report, per_pass, period)
    medians = {entry: spread(times[entry])["median"] for entry in times if entry.method in plan.rivals}
    best = min(medians, key=medians.__getitem__)
    return [_row(net, entry, times, best, steps[entry], sizes) for entry in times]


def _row(
    net: Net,
    entry: Entry,
    times: Mapping[Entry, Sequence[float]],
    best: Entry,
    steps: int,
    sizes: Mapping[Entry, tuple[int, int]],
) -> Row:
    yardstick, seconds = entry._replace(method=YARDSTICK), spread(times[entry])
    return {
        **dict(zip(("net", "model", "data", "batch_size"), net, strict=True)),
        **entry._asdict(),
        "step_seconds": seconds,
        "samples_per_second": net.batch_size / seconds["median"],
        "time_ratio": ratio(times, entry, yardstick),
        "best_backprop": f"{best.method}, {best.mode}",
        "ratio_to_best": ratio(times, entry, best),
        "rounds": len(times[entry]),
        "steps_per_round": steps,
        "kept_bytes": sizes[entry][0],
        "peak_bytes": sizes[entry][1],
        "memory_ratio": sizes[entry][1] / sizes[yardstick][1],
    }


def ratio(times: Mapping[Entry, Sequence[float]], one: Entry, other: Entry) -> dict[str, float]:
    """Return median and quartiles of one / other, taken round by round."""
    return spread([a / b for a, b in zip(times[one], times[other], strict=True)])


def table(rows: Sequence[Row], samples: int | None) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: times as median and, in brackets, the quartiles. samples: of a pass, if passes
    were measured."""

    def quartiles(values: Mapping[str, float], digits: int = 2, times: float = 1.0) -> str:
        median, low, high = (f"{times * values[name]:.{digits}f}" for name in ("median", "q1", "q3"))
        return f"{median} ({low} to {high})"

    head = ["net", "mode", "method", "ms per step" if samples is None else "s per pass", f"time / {YARDSTICK}"]
    head += ["best backprop", "time / best", "samples / s", "MB kept", "MB at peak", f"memory / {YARDSTICK}"]
    found = []
    for row in rows:
        unit = (3, 1e3) if samples is None else (2, row["steps_per_round"])
        sizes = [f"{row[name] / 1e6:.2f}" for name in ("kept_bytes", "peak_bytes")]
        line = [row["net"], row["mode"], row["method"], quartiles(row["step_seconds"], *unit)]
        line += [quartiles(row["time_ratio"]), row["best_backprop"], quartiles(row["ratio_to_best"])]
        found.append([*line, f"{row['samples_per_second']:,.0f}", *sizes, f"{row['memory_ratio']:.2f}"])
    return head, found
