"""All that is measured on one net, in one pool whose members take turns: every ratio is between neighbours in time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from altmin import data
from altmin.cli import measure, modes, running
from altmin.cli.specs import YARDSTICK, Net, Variant
from altmin.methods import Method


class Entry(NamedTuple):
    """A variant of a method, the mode in which it runs, and how many of it run as one."""

    label: str
    mode: str
    members: int


class Plan(NamedTuple):
    """What is measured on every net."""

    variants: Sequence[Variant]
    modes: Sequence[str]
    members: Sequence[int]
    seed: int
    device: torch.device

    def build(self, net: Net, variant: Variant, seed: int) -> Method:
        known = data.dataset(net.data)
        return running.build(net.model, known, variant.method, variant.options, seed, self.device)

    def entries(self, net: Net) -> tuple[list[Entry], dict[Entry, str]]:
        """What there is to measure, and what not, with the reason. Each method is built, to see that it can be."""
        built = {variant.label: self.build(net, variant, self.seed) for variant in self.variants}
        wanted = [Entry(label, mode, n) for mode in self.modes for n in self.members for label in built]
        without = {entry: modes.skipped(built[entry.label], entry.mode, entry.members) for entry in wanted}
        return [e for e in wanted if not without[e]], {e: reason for e, reason in without.items() if reason}

    def make(self, net: Net, batch: measure.Batch, entry: Entry) -> Method:
        """One entry, ready to step: members of seeds that follow each other, as one, in their mode."""
        variant = next(variant for variant in self.variants if variant.label == entry.label)
        each = [self.build(net, variant, self.seed + i) for i in range(entry.members)]
        one: Method = each[0] if len(each) == 1 else modes.part("altmin", "Ensemble")(each)
        return modes.wrapped(one, entry.mode, batch)


def measured(plan: Plan, net: Net, seconds: float, report: Callable[[float], None]) -> list[dict[str, Any]]:
    """A row for each entry of a net."""
    if any("compile" in mode for mode in plan.modes):
        torch.compiler.reset()  # eight versions of a function are compiled, further ones run as they are
    known = data.dataset(net.data)
    batches = measure.synthetic(known.sample_shape, known.classes, net.batch_size, plan.device)
    methods, sizes = {}, {}
    for entry in plan.entries(net)[0]:
        make = partial(plan.make, net, batches[0])
        methods[entry], *sizes[entry] = measure.step_bytes(
            partial(make, entry), batches[0], partial(make, entry._replace(mode="eager")), "graph" in entry.mode
        )
    times, steps = measure.step_seconds(methods, batches, seconds, plan.seed, report)
    rivals = [v.label for v in plan.variants if v.method == YARDSTICK and v.label != YARDSTICK]
    return [_row(net, entry, times, steps[entry], sizes, rivals) for entry in times]


def _row(
    net: Net,
    entry: Entry,
    times: Mapping[Entry, Sequence[float]],
    steps: int,
    sizes: Mapping[Entry, Sequence[int]],
    rivals: Sequence[str],
) -> dict[str, Any]:
    yardstick = entry._replace(label=YARDSTICK)
    seconds = measure.spread(times[entry])
    kept, peak = sizes[entry]
    row = {
        "net": net.text,
        "model": net.model,
        "data": net.data,
        "batch_size": net.batch_size,
        "method": entry.label,
        "mode": entry.mode,
        "members": entry.members,
        "step_seconds": seconds,
        "member_step_seconds": {name: value / entry.members for name, value in seconds.items()},
        "samples_per_second": net.batch_size * entry.members / seconds["median"],
        "time_ratio": ratio(times, entry, yardstick),
        "ratio_to_compiled": ratio(times, entry, yardstick._replace(mode="compile")),
        "ratio_to_one_member": ratio(times, entry, entry._replace(members=1)),
        "ratio_to_variants": {label: ratio(times, entry, entry._replace(label=label)) for label in rivals},
        "rounds": len(times[entry]),
        "steps_per_round": steps,
        "kept_bytes": kept,
        "peak_bytes": peak,
        "memory_ratio": peak / sizes[yardstick][1],
    }
    return row if net.size is None else {**row, "size": net.size}


def ratio(times: Mapping[Entry, Sequence[float]], one: Entry, other: Entry) -> dict[str, float] | None:
    """Of two entries round by round: each time two blocks that ran side by side. Nothing if one was not measured."""
    if other not in times:
        return None
    return measure.spread([a / b for a, b in zip(times[one], times[other], strict=True)])
