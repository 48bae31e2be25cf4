"""Runners against one process: ensembles, steps as they are recorded, parts of a mini-batch, samples over ranks and
blocks over ranks compute what one process does, or refuse it on all ranks in one line and change nothing.

The ranks are two processes, which train all cases one after the other, also those after a case that was broken off.
"""

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import altmin
from altmin.runners.ranks import RankFailed, bounds

from .drawn_networks import Case, draw_case
from .judge import ALLOWED, UNCLEAR, picture, short

sys.path.append(str(Path(__file__).resolve().parent.parent))
import ranks

SIZE, PARTS = 2, 2
NUDGE, AMPLIFIED = 1e-14, 100
"""By how much weights are nudged, and how many times its effect is still rounding."""
Outcome = tuple[str, Any]
"""How a run ended: "done" and its numbers, "refused" and why, or "failed" and how."""
MAY = {
    "blocks over ranks": ("at least as many blocks", "needs all blocks at once"),
    "an ensemble": ("draws random numbers", "decides on the processor", "momentum=None"),
    "a recorded step": ("draws random numbers", "is captured if it is fused", "decides", "momentum=None"),
}
"""Words of refusals that a runner may give to a network that nothing is wrong with."""

OWN_NUMBERS = ("blocks over ranks", "an ensemble", "a recorded step")
"""Runners that draw other random numbers than one process."""


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """`count` cases, each in one runner."""
    seeds = list(range(seed, seed + count))
    counters = {"equal": 0, "refused": 0}
    spread = ranks.run(SIZE, on_rank, seeds)
    with torch.random.fork_rng(devices=()):
        for i, number in enumerate(seeds):
            name, case = drawn(number)
            runner, alone, _ = RUNNERS[name]
            found = [each[i] for each in spread] if "ranks" in name else [ended(runner, case, number)]
            expected = ended(alone, case, number)
            said = faults(name, case, expected, found, partial(rounding, case, number, expected))
            failures += [f"runners --seed {number}: {name} {each}; drawn: {case.words}" for each in said]
            counters["equal" if found[0][0] == "done" else "refused"] += 1
    return counters


def drawn(seed: int) -> tuple[str, Case]:
    """The runner and the case of a seed."""
    r = Random(seed)
    torch.manual_seed(seed)
    name, case = r.choice(("rows over ranks", *RUNNERS)), draw_case(r)
    if not case.in_parts and name in ("parts over ranks", "blocks over ranks"):
        name = "rows over ranks"
    return name, case


def on_rank(rank: int, seeds: Sequence[int]) -> list[Outcome | None]:
    """How the cases end that are for ranks."""
    cases = ((seed, *drawn(seed)) for seed in seeds)
    return [ended(RUNNERS[name][0], case, seed) if "ranks" in name else None for seed, name, case in cases]


def rounding(case: Case, seed: int, expected: Outcome) -> float:
    """How far the result of one process is from that with weights which differ by rounding: much in a run that
    diverges."""
    model = copy.deepcopy(case.network.model)
    for p in model.parameters():
        p.data *= 1 + NUDGE
    nudged = replace(case, network=replace(case.network, model=model))
    return far(ended(RUNNERS[drawn(seed)[0]][1], nudged, seed)[1], expected[1])


def faults(
    name: str, case: Case, expected: Outcome, found: Sequence[Outcome], effect: Callable[[], float] = lambda: 0.0
) -> list[str]:
    """What is wrong with how a run ended, on all ranks, given how one process did. effect: that of `rounding`."""
    said = [what for kind, what in found if kind == "failed"]
    said += [f"is compared with one process, which {what}" for kind, what in (expected,) if kind == "failed"]
    if said:
        return said
    kinds = [kind for kind, _ in found]
    if len(set(kinds)) > 1:
        return [f"ended in different ways on the ranks: {kinds}"]
    if kinds[0] == "refused":
        known = expected[0] == "refused" or ("ranks" in name and not case.network.divisible)
        known |= expected[0] == "done" and not all(bool(t.isfinite().all()) for t in expected[1])  # as by torch's SGD
        known |= any(word in what for _, what in found for word in MAY.get(name, ()))
        return [] if known else [f"refused what it should not: {found[0][1]}"]
    if expected[0] == "refused":
        return [f"did what one process refuses: {expected[1]}"]
    if case.network.random and name in OWN_NUMBERS:
        return []
    distance = max(far(each, expected[1]) for _, each in found)
    return (
        []
        if distance <= RUNNERS[name][2] or distance <= AMPLIFIED * effect()
        else [f"is {distance:.1e} from one process"]
    )


def far(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    if [t.shape for t in found] != [t.shape for t in expected]:
        return torch.inf
    pairs = [(a.double(), b.double()) for a, b in zip(found, expected, strict=True) if a.numel()]
    same = [torch.where(a.isnan() & b.isnan(), 0.0, (a - b).abs() / (1 + b.abs())) for a, b in pairs]
    return max(float(t.nan_to_num(nan=torch.inf).max()) for t in same)


def leaves(state: Any) -> list[Tensor]:
    """The tensors and numbers of nested state, in an order that does not depend on that of its keys."""
    if isinstance(state, Mapping):
        return [t for key in sorted(state, key=str) for t in leaves(state[key])]
    if isinstance(state, list | tuple):
        return [t for each in state for t in leaves(each)]
    if isinstance(state, Tensor):
        return [state.detach().clone()]
    return [torch.tensor(float(state), dtype=torch.float64)] if isinstance(state, int | float) else []


def ended(runner: "Runner", case: Case, seed: int) -> Outcome:
    """How the training of all mini-batches ends."""
    run: Any = None
    before: Any = None
    losses: list[Any] = []
    try:
        run = runner.make(case)
        torch.manual_seed(seed)
        for x, y in case.batches:
            before = picture(runner.held(run))
            losses.append(runner.step(run, x, y))
        return "done", leaves([runner.state(run), losses])
    except (*ALLOWED, RankFailed) as error:
        if "\n" in str(error) or any(word in str(error) for word in UNCLEAR):
            return "failed", f"was refused in words that are not the library's: {short(error)}"
        if before is not None and picture(runner.held(run)) != before:
            return "failed", f"was refused ({short(error)}) but has changed the state"
        return "refused", short(error)
    except Exception as error:
        return "failed", f"raised {short(error)}"


class Runner:
    """One process: the method itself."""

    def make(self, case: Case) -> Any:
        """What trains a copy of the case's model."""
        return case.method(copy.deepcopy(case.network.model))

    def step(self, run: Any, x: Tensor, y: Tensor) -> Any:
        """Trains on a mini-batch; its losses."""
        return run.step(x, y).loss

    def held(self, run: Any) -> Any:
        """What a step that is refused must leave as it was, on this rank."""
        return self.state(run)

    def state(self, run: Any) -> Any:
        """What is compared at the end."""
        return dict(run.model.state_dict()), run.state_dict()


class Parts(Runner):
    """One process, which is given every mini-batch in parts. shown: whether their losses are compared."""

    def __init__(self, shown: bool = True):
        self.shown = shown

    def step(self, run: Any, x: Tensor, y: Tensor) -> Any:
        parts = PARTS if len(x) >= 2 * PARTS else 1
        cuts = [slice(*bounds(len(x), i, parts)) for i in range(parts)]
        losses = [run.gather(x[cut], y[cut]).loss for cut in cuts]
        run.apply()
        return losses if self.shown else []

    def held(self, run: Any) -> Any:
        return ()  # parts before the one that is refused have been gathered


class RowsOverRanks(Runner):
    def make(self, case: Case) -> Any:
        return altmin.Distributed(super().make(case))


class PartsOverRanks(RowsOverRanks, Parts):
    pass


class BlocksOverRanks(Runner):
    def make(self, case: Case) -> Any:
        return altmin.LayerParallel(super().make(case), PARTS)

    def step(self, run: Any, x: Tensor, y: Tensor) -> Any:
        run.step(x, y)
        return []  # its loss is the mean over parts

    def held(self, run: Any) -> Any:
        return dict(run.model.state_dict()), run.method.state_dict()

    def state(self, run: Any) -> Any:
        run.synchronize()
        return super().state(run)


class Members(Runner):
    """One process with one method after the other, of which the second has other weights."""

    def make(self, case: Case) -> Any:
        models = [copy.deepcopy(case.network.model) for _ in range(2)]
        for p in models[1].parameters():
            p.data += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype)
        return [case.method(model) for model in models]

    def step(self, run: Any, x: Tensor, y: Tensor) -> Any:
        return [method.step(x, y).loss for method in run]

    def state(self, run: Any) -> Any:
        return [(dict(method.model.state_dict()), method.state_dict()) for method in run]


class Together(Members):
    def make(self, case: Case) -> Any:
        return altmin.Ensemble(super().make(case))

    def step(self, run: Any, x: Tensor, y: Tensor) -> Any:
        return list(run.step(x, y, each=False).loss)

    def state(self, run: Any) -> Any:
        return super().state(run.methods)


class Recorded(Runner):
    """A step as it would be recorded on a GPU, run again instead."""

    def make(self, case: Case) -> Any:
        with patch("altmin.runners.recorded.demand_recordable"):
            return altmin.Recorded(super().make(case), fuse=False)

    def step(self, run: Any, x: Tensor, y: Tensor) -> Any:
        return run.step(x, y).loss.clone()

    def held(self, run: Any) -> Any:
        return dict(run.model.state_dict())  # an optimizer's moments, zero at first, are there once it is recorded


RUNNERS: dict[str, tuple[Runner, Runner, float]] = {
    "rows over ranks": (RowsOverRanks(), Runner(), 1e-10),
    "parts over ranks": (PartsOverRanks(), Parts(), 1e-10),
    "blocks over ranks": (BlocksOverRanks(), Parts(shown=False), 1e-10),
    "an ensemble": (Together(), Members(), 1e-8),
    "a recorded step": (Recorded(), Runner(), 1e-8),
}
"""Each with how one process does the same, and how far its numbers may be from those, over one plus their size."""
