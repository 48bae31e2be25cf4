"""Measures everything requested. On one net all entries take turns, so that any two of its rows compare."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from altmin import data, methods, models
from altmin.calculus.context import LOCAL, Context
from altmin.methods import Method
from altmin.runners.ensemble import Ensemble
from altmin.training.run import demand_context
from reproduction.speed import modes
from reproduction.speed.cases import YARDSTICK, Entry, Net, Variant
from reproduction.speed.measure import spread, step_bytes, step_seconds, synthetic

Row = dict[str, Any]
Report = Callable[[float, str], None]


class Plan(NamedTuple):
    """What is measured on every net: each variant in each mode with each number of members."""

    variants: Sequence[Variant]
    modes: Sequence[str]
    members: Sequence[int]
    seed: int
    device: torch.device
    samples: int | None = None
    """How many samples a pass over the data has, if whole passes are measured."""
    context: Context = LOCAL
    """Of the steps."""
    of_backprop: Sequence[str] = ()
    """Further modes, in which the yardstick and its variants alone are measured; compiled, other methods too that can
    be."""

    def build(self, net: Net, entry: Entry) -> list[Method]:
        """The members of an entry, from seeds that follow each other. Raises what a method has against the model."""
        variant = next(variant for variant in self.variants if variant.label == entry.method)
        known, built = data.dataset(net.data), []
        for i in range(entry.members):
            torch.manual_seed(self.seed + i)
            model = models.create(net.model, known.sample_shape, known.classes, known.tokens).to(self.device)
            built.append(methods.create(variant.method, model, **variant.options))
        return built

    def make(self, net: Net, entry: Entry) -> Method:
        """One entry, ready to step in the plan's context. Raises ValueError or TypeError where that cannot be."""
        return self.combined(self.build(net, entry), entry.mode)

    def combined(self, members: Sequence[Any], mode: str) -> Method:
        one: Any = members[0] if len(members) == 1 else Ensemble(members)
        method: Any = modes.apply(mode, one)
        if self.context.bf16:
            demand_context(method)
            method.step = partial(method.step, context=self.context)
        return method

    def entries(self, net: Net) -> tuple[list[Entry], dict[Entry, str]]:
        """What can be measured on a net, and what cannot, with the reason. Two members represent any number of them."""
        rivals = [v.label for v in self.variants if v.method == YARDSTICK]
        labels = [v.label for v in self.variants]
        asked = [(mode, labels) for mode in self.modes]
        asked += [(mode, labels if mode == "compile" else rivals) for mode in self.of_backprop]
        wanted = [Entry(label, mode, n) for mode, given in asked for n in self.members for label in given]
        reasons: dict[Entry, str] = {}
        for entry in wanted:
            built = self.build(net, entry._replace(members=min(entry.members, 2)))
            try:
                self.combined(built, entry.mode)
            except (ValueError, TypeError) as error:
                reasons[entry] = str(error)
        for entry in wanted:
            if why := reasons.get(entry._replace(method=YARDSTICK)):
                reasons.setdefault(entry, f"{YARDSTICK}, which it is measured against, cannot: {why}")
        possible = [entry for entry in wanted if entry not in reasons]
        told = {e: why for e, why in reasons.items() if e.mode in self.modes or e.method in rivals}
        return possible, told


def measure(plan: Plan, nets: Sequence[Net], seconds: float, report: Report) -> tuple[list[Row], list[Row]]:
    """A row for each entry of each net, and one for each that was left out, with the reason, which a warning says too.

    Every entry of every net is tried before the first is measured. seconds: about how long to measure in all.
    report: called with the part of the work that is done and the net under way.
    """
    tried = [(net, *plan.entries(net)) for net in nets]
    skipped = [
        {"net": net.text, **entry._asdict(), "reason": why} for net, _, lacks in tried for entry, why in lacks.items()
    ]
    for row in skipped:
        _say_skipped(row)
    if not any(entries for _, entries, _ in tried):
        raise ValueError(f"nothing can be measured: {skipped[0]['reason']}")
    rows: list[Row] = []
    for i, (net, entries, _) in enumerate(tried):

        def of_all(part: float, i: int = i, net: Net = net) -> None:
            report((i + part) / len(nets), f"{net.model}, batches of {net.batch_size}")

        rows += measure_net(plan, net, entries, seconds / len(nets), of_all, skipped)
    _warn_if_unsteady(rows)
    return rows, skipped


def _say_skipped(row: Row) -> None:
    many = " as an ensemble" if row["members"] > 1 else ""
    warnings.warn(f"{row['method']}{many} is not measured in mode {row['mode']}: {row['reason']}")


def measure_net(
    plan: Plan,
    net: Net,
    entries: Sequence[Entry],
    seconds: float,
    report: Callable[[float], None],
    skipped: list[Row],
) -> list[Row]:
    """A row for each of the entries of a net. Those of backprop's own modes that fail are added to `skipped`."""
    if not entries:
        return []
    if any("compile" in entry.mode for entry in entries):
        torch.compiler.reset()  # eight versions of a function are compiled, further ones run as they are
    known = data.dataset(net.data)
    batches = synthetic(known.sample_shape, known.classes, net.batch_size, plan.device, tokens=known.tokens)
    built, sizes = {}, {}
    for entry in entries:
        make, plain = partial(plan.make, net, entry), partial(plan.make, net, entry._replace(mode="eager"))
        try:
            built[entry], *sizes[entry] = step_bytes(make, batches[0], plain, "graph" in entry.mode)
        except (ValueError, RuntimeError) as error:
            if entry.mode not in plan.of_backprop:
                raise
            skipped.append({"net": net.text, **entry._asdict(), "reason": str(error).splitlines()[0]})
            _say_skipped(skipped[-1])
    built = {entry: method for entry, method in built.items() if entry._replace(method=YARDSTICK) in built}
    per_pass = None if plan.samples is None else -(-plan.samples // net.batch_size)
    times, steps = step_seconds(built, batches, seconds, plan.seed, report, per_pass)
    rivals = [v.label for v in plan.variants if v.method == YARDSTICK]
    return [_row(net, entry, times, steps[entry], sizes, rivals) for entry in times]


def _row(
    net: Net,
    entry: Entry,
    times: Mapping[Entry, Sequence[float]],
    steps: int,
    sizes: Mapping[Entry, Sequence[int]],
    rivals: Sequence[str],
) -> Row:
    yardstick = entry._replace(method=YARDSTICK)
    seconds = spread(times[entry])
    best = min(
        (each for each in times if each.method in rivals and each.members == entry.members),
        key=lambda each: spread(times[each])["median"],
    )
    kept, peak = sizes[entry]
    row = {
        **dict(zip(("net", "model", "data", "batch_size"), net, strict=False)),
        **entry._asdict(),
        "step_seconds": seconds,
        "member_step_seconds": {name: value / entry.members for name, value in seconds.items()},
        "samples_per_second": net.batch_size * entry.members / seconds["median"],
        "time_ratio": ratio(times, entry, yardstick),
        "ratio_to_compiled": ratio(times, entry, yardstick._replace(mode="compile")),
        "ratio_to_one_member": ratio(times, entry, entry._replace(members=1)),
        "ratio_to_variants": {
            label: ratio(times, entry, entry._replace(method=label)) for label in rivals if label != YARDSTICK
        },
        "best_backprop": f"{best.method}, {best.mode}",
        "ratio_to_best": ratio(times, entry, best),
        "rounds": len(times[entry]),
        "steps_per_round": steps,
        "kept_bytes": kept,
        "peak_bytes": peak,
        "memory_ratio": peak / sizes[yardstick][1],
    }
    return row if net.size is None else {**row, "size": net.size}


def ratio(times: Mapping[Entry, Sequence[float]], one: Entry, other: Entry) -> dict[str, float] | None:
    """Median and quartiles of one / other, taken round by round; None if the other was not measured."""
    if other not in times:
        return None
    return spread([a / b for a, b in zip(times[one], times[other], strict=True)])


def _warn_if_unsteady(rows: Sequence[Row]) -> None:
    """The yardstick does the same in every round; if its times vary, so does the machine."""
    times = [(row["model"], row["step_seconds"]) for row in rows if row["method"] == YARDSTICK]
    if unsteady := dict.fromkeys(model for model, time in times if time["q3"] > 1.5 * time["q1"]):
        warnings.warn(
            f"the times of {YARDSTICK} itself vary by more than a half on {', '.join(unsteady)}: something else was "
            "running, or --threads is more than the machine has to spare; measure again"
        )
