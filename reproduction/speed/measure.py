"""Time and memory of a training step, measured so that a slow moment of the machine falls on all methods alike."""

import gc
import os
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, cycle, islice
from statistics import quantiles
from typing import Any, TypeVar

import torch
from torch import Tensor

from altmin.methods import Method

Batch = tuple[Tensor, Tensor]
Name = TypeVar("Name", bound=Hashable)
SHORTEST = {"cpu": 0.02, "cuda": 0.05}  # seconds for which a block of steps should run, to drown the clock's own grain
MOST = {"cpu": 200, "cuda": 1000}  # steps in a block; a step that a GPU replays takes some 50 microseconds
SETTLED = 260  # steps after which memories are refreshed at equal distances
FEWEST = 7  # rounds, however little time there is
FEWEST_PASSES = 3  # rounds, where each is a pass over the data
MARK = "the step that is measured"


def synthetic(
    sample_shape: Sequence[int],
    classes: int,
    batch_size: int,
    device: torch.device,
    count: int = 16,
    tokens: bool = False,
) -> list[Batch]:
    """Return batches of noise with labels that can be learnt, so that no method runs into trivial numbers. Of tokens
    each label is the token itself."""
    if tokens:
        drawn = torch.randint(classes, (count, batch_size, *sample_shape)).to(device)
        return [(x, x) for x in drawn]
    samples = torch.randn(count, batch_size, *sample_shape)
    labels = (samples.flatten(2) @ torch.randn(samples[0, 0].numel(), classes)).argmax(2)
    return [(x.to(device), y.to(device)) for x, y in zip(samples, labels, strict=True)]


def step_seconds(
    methods: Mapping[Name, Method],
    batches: Sequence[Batch],
    budget: float,
    seed: int = 0,
    report: Callable[[float], None] = lambda part: None,
    per_pass: int | None = None,
    period: int = 1,
) -> tuple[dict[Name, list[float]], dict[Name, int]]:
    """Return the seconds per step of each method in each round, and how many steps it does in a round.

    A round runs a block of steps of every method, in a new random order, so that a slow moment of the machine
    or the order itself favours none. `end_epoch` belongs to the block: an offline method learns there.

    per_pass: the number of batches in a pass over the data, if every block is to be one. Else a block has as many as
    can be timed well, a multiple of `period`, after which steps that cost more come again; they do from `SETTLED` on.
    """
    device = batches[0][0].device
    source = cycle(batches)

    def block(method: Method, steps: int) -> float:
        chosen = list(islice(source, steps))
        _synchronize(device)
        start = time.perf_counter()
        for (x, y), how in zip(chosen, _rows(method, chosen), strict=True):
            method.step(x, y, **how)
        method.end_epoch()
        _synchronize(device)
        return (time.perf_counter() - start) / steps

    def fitting(method: Method) -> int:
        """The steps that a block should have, after some for warming up: fewer of them where a step is long."""
        if per_pass is not None:
            block(method, per_pass)
            return per_pass
        first = block(method, SETTLED if period > 1 else 1)
        warm = max(2, min(10, round(0.05 * budget / max(first, 1e-9))))
        block(method, warm)
        rough = block(method, min(5, warm))
        fit = min(MOST[device.type], max(1, round(SHORTEST[device.type] / max(rough, 1e-9))))
        return -(-fit // period) * period

    steps = {name: fitting(method) for name, method in methods.items()}
    order, drawn = list(methods), random.Random(seed)
    fewest = FEWEST if per_pass is None else FEWEST_PASSES
    found: dict[Name, list[float]] = {name: [] for name in methods}
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < budget or len(found[order[0]]) < fewest:
            report(min(1.0, spent / budget))
            drawn.shuffle(order)
            for name in order:
                found[name].append(block(methods[name], steps[name]))
    finally:
        gc.enable()
    return found, steps


def _rows(method: Method, batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """Return further arguments of steps: the samples' numbers, for a method with variables of each sample."""
    if not getattr(method, "takes_rows", False):
        return [{}] * len(batches)
    ends = list(accumulate((len(x) for x, _ in batches), initial=0))
    return [{"rows": torch.arange(*ends[i : i + 2])} for i in range(len(batches))]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median and quartiles.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    {'median': 3.0, 'q1': 2.0, 'q3': 4.0}
    """
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high}


def step_bytes(
    make: Callable[[], Method], batch: Batch, plain: Callable[[], Method] | None = None, recorded: bool = False
) -> tuple[Method, int, int]:
    """Return the method, the bytes that it keeps from step to step (parameters, state, gradients), and the most during
    a step.

    They are what torch's allocator gave out, exactly. The batch itself is not counted, nor what libraries allocate on
    their own: `plain` makes the same method unrecorded, and a few of its steps make them do so before the count.

    recorded: a recorded step holds its working memory from the recording on, so both numbers are the peak of that.
    """
    device = batch[0].device
    if device.type == "cuda":
        return _on_cuda(make, batch, device, plain or make, recorded)
    return _on_cpu(make, batch)


def _steps(method: Method, batch: Batch, count: int) -> None:
    for _ in range(count):
        method.step(*batch)
        method.end_epoch()


def _on_cuda(
    make: Callable[[], Method], batch: Batch, device: torch.device, plain: Callable[[], Method], recorded: bool
) -> tuple[Method, int, int]:
    _steps(plain(), batch, 3)  # the libraries' own workspaces come with their first use, and stay
    gc.collect()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    method = make()
    _steps(method, batch, 3)
    kept = torch.cuda.memory_allocated(device) - before
    if recorded:  # its peak was reached while it was recorded
        peak = torch.cuda.max_memory_allocated(device) - before
        return method, peak, peak
    torch.cuda.reset_peak_memory_stats(device)
    _steps(method, batch, 1)
    return method, kept, torch.cuda.max_memory_allocated(device) - before


def _on_cpu(make: Callable[[], Method], batch: Batch) -> tuple[Method, int, int]:
    """The CPU's allocator keeps no count, but the profiler sees each of its moves: add them up from the start."""
    from torch.profiler import ProfilerActivity, profile, record_function

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write to the terminal
    gc.collect()  # what an earlier method left would be seen to go
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        method = make()
        _steps(method, batch, 3)
        with record_function(MARK):
            _steps(method, batch, 1)
    assert seen.profiler is not None
    events = seen.profiler.kineto_results.events()
    mark = next(event for event in events if event.name() == MARK)
    moves = sorted((e.start_ns(), i, e.nbytes()) for i, e in enumerate(events) if e.name() == "[memory]")
    kept = peak = now = 0
    for moment, _, size in moves:
        now += size
        if moment < mark.start_ns():
            kept = peak = now
        elif moment <= mark.end_ns():
            peak = max(peak, now)
    return method, kept, peak


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
