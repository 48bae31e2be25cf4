"""Steps of MLPs of 16 blocks by AM and by backprop with Adam, in one process and in two with one thread each, in turns.

Backprop's opponents are torch's own: DistributedDataParallel and the pipelines 1F1B and zero bubble of
torch.distributed.pipelining with the same micro-batches. Before timing, the gradients of several processes are compared
with those of one.
"""

import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn

import altmin
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.ranks import bounds
from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.measurements.speed import quartiles
from reproduction.results import Row, Setting
from reproduction.tables import markdown, table

RANKS = 2
Gradients = dict[str, Tensor]


class Contestant(NamedTuple):
    """step: None where this rank has nothing to do. gradients: those of its first step, by the names of the whole
    model's parameters, as far as this rank has them. alike: whose first gradients they must be."""

    step: Callable[[], Any] | None
    gradients: Callable[[], Gradients]
    alike: str = ""


def model_of(case: Case) -> nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(0)
    return altmin.models.mlp(case["width"], [case["width"]] * (case["blocks"] - 1), 10)


def samples_of(case: Case) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(case["batch"], case["width"]), torch.randint(0, 10, (case["batch"],))


def of_model(model: nn.Module, own: Any = None) -> Callable[[], Gradients]:
    """The gradients of a model's parameters, of some of them if these are given."""
    some = None if own is None else {id(p) for p in own}
    return lambda: {
        name: p.grad for name, p in model.named_parameters() if p.grad is not None and (some is None or id(p) in some)
    }


def of_rule(am: Any) -> Callable[[], Gradients]:
    """The first moments of Adam in a trainer's blocks, after the first step a tenth of the gradients."""
    names = {id(p): name for name, p in am.model.named_parameters()}
    return lambda: {
        names[id(p)]: moment
        for l, state in am.updates.states.items()
        for p, moment in zip(am.theta[l], state["exp_avg"], strict=True)
    }


def backprop(model: nn.Module) -> Any:
    return altmin.methods.create("adam", model, lr=1e-4, fused=True)


def am(model: nn.Module) -> Any:
    return altmin.AltMin(model, weights=altmin.LocalAdam(lr=1e-4))


def replicated(case: Case, rank: int) -> Contestant:
    """torch's DistributedDataParallel: each rank has its rows, gradients are averaged while the backward pass runs."""
    model, (x, y) = model_of(case), samples_of(case)
    first, end = bounds(case["batch"], rank, RANKS)
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x[first:end]), y[first:end]).backward()
        optimizer.step()

    return Contestant(step, of_model(model), "backprop")


def pipeline(case: Case, rank: int, schedule: str, stages: int) -> Contestant:
    """torch.distributed.pipelining, blocks in equal runs: `stages` of them, every second one on each rank."""
    from torch.distributed import pipelining  # which loads torch's compiler

    model, (x, y) = model_of(case), samples_of(case)
    starts = [0, *(i + 1 for i, m in enumerate(model) if isinstance(m, nn.Linear))]  # of blocks, as in a chain
    parts = [model[a:b] for a, b in itertools.pairwise(starts[:: case["blocks"] // stages])]
    own = range(rank, stages, RANKS)
    held: Any = [pipelining.PipelineStage(parts[s], s, stages, torch.device("cpu")) for s in own]
    runs = getattr(pipelining, schedule)(
        held if stages > RANKS else held[0], case["micro_batches"], loss_fn=nn.functional.cross_entropy
    )
    parameters = [p for s in own for p in parts[s].parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    inputs, targets = ((x,) if 0 in own else ()), ({"target": y} if stages - 1 in own else {})

    def step() -> None:
        optimizer.zero_grad()
        runs.step(*inputs, **targets)
        optimizer.step()

    return Contestant(step, of_model(model, parameters), "backprop")


def contestants(case: Case, rank: int) -> dict[str, Contestant]:
    """All that are timed, each with a model of its own."""
    x, y = samples_of(case)
    alone = {"am": am(model_of(case)), "backprop": backprop(model_of(case))}
    ranks = Distributed(am(model_of(case)))
    layers = LayerParallel(am(model_of(case)), case["micro_batches"], cuts=[case["blocks"] // 2])

    def in_one(name: str) -> Contestant:
        step = (lambda: alone[name].step(x, y)) if rank == 0 else None
        return Contestant(step, dict)

    return {
        "am": in_one("am"),
        "am data-parallel": Contestant(lambda: ranks.step(x, y), of_rule(ranks), "am"),
        "am layer-parallel": Contestant(lambda: layers.step(x, y), of_rule(layers), "am in parts"),
        "backprop": in_one("backprop"),
        "backprop DDP": replicated(case, rank),
        "backprop 1F1B": pipeline(case, rank, "Schedule1F1B", 2),
        "backprop zero bubble": pipeline(case, rank, "ScheduleInterleavedZeroBubble", 4),
    }


def references(case: Case) -> dict[str, Any]:
    """Methods of one process after one step; "am in parts" has gathered the micro-batches one by one."""
    x, y = samples_of(case)
    found = {"am": am(model_of(case)), "am in parts": am(model_of(case)), "backprop": backprop(model_of(case))}
    for name in ("am", "backprop"):
        found[name].step(x, y)
    for part in range(case["micro_batches"]):
        first, end = bounds(case["batch"], part, case["micro_batches"])
        found["am in parts"].gather(x[first:end], y[first:end])
    found["am in parts"].apply()
    return found


def differences(found: dict[str, Contestant], case: Case) -> dict[str, float]:
    """Of the first gradients of several processes from those of one, over the largest of each parameter's; the largest
    on any rank. Every contestant has stepped once then. RuntimeError if a parameter has no gradient on any rank."""
    one, result = references(case), {}
    for each in found.values():
        if each.step is not None:
            each.step()
    for name, each in found.items():
        if each.alike:
            alike = one[each.alike]
            grads = of_model(alike.model)() if each.alike == "backprop" else of_rule(alike)()
            ours = each.gradients()
            known = torch.tensor([float(p in ours) for p in grads])
            dist.all_reduce(known)
            if not bool(known.all()):
                raise RuntimeError(f"{name} has left parameters without a gradient")
            worst = max(((g - grads[p]).abs().max() / grads[p].abs().max()).item() for p, g in ours.items())
            result[name] = _largest(worst)
    return result


def _largest(value: float) -> float:
    """Over the ranks."""
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.item()


def _rank(rank: int, store: str, case: Case, answer: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    found = _timed(case, rank)
    gc.collect()  # a reducer of DDP that outlives the group waits for ever when it is deleted
    if rank == 0:
        answer.put(found)
    dist.destroy_process_group()


def _timed(case: Case, rank: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return `differences`, and seconds of a step of each contestant, once a round: the mean of some steps, on the
    slower rank. In every round all are measured, beginning with another one; the first round is not counted."""
    found = contestants(case, rank)
    apart, names = differences(found, case), list(found)
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(case["rounds"] + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            step = found[name].step
            dist.barrier()
            started = time.perf_counter()
            for _ in range(case["steps"] if step is not None else 0):
                step()  # type: ignore[misc]
            seconds[name].append(_largest(time.perf_counter() - started) / case["steps"])
    return apart, {name: each[1:] for name, each in seconds.items()}


def measure(case: Case, seed: int, setting: Setting) -> Row:
    """RuntimeError if gradients of several processes are not those of one."""
    answer = processes.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_rank, (f"{folder}/store", case, answer), nprocs=RANKS)
        apart, seconds = answer.get()
    if wrong := {name: d for name, d in apart.items() if not d < 1e-4}:
        raise RuntimeError(f"gradients differ from those of one process: {wrong}")
    found = {}
    for name, own in seconds.items():
        ratios = [a / b for a, b in zip(own, seconds[name.split()[0]], strict=True)]
        both = {"milliseconds": [1e3 * s for s in own], "over_one": ratios}
        found[name] = {what: _quartiles(each) for what, each in both.items()} | {"difference": apart.get(name)}
    return {"found": found}


def _quartiles(values: list[float]) -> Row:
    return dict(zip(("q1", "median", "q3"), statistics.quantiles(values, n=4, method="inclusive"), strict=True))


SMALL = {"blocks": 4, "width": 16, "batch": 32, "micro_batches": 2, "rounds": 2, "steps": 1}
CASES = [
    Case(measure, {"blocks": 16, **size, "micro_batches": 4, "rounds": 15}, seeds=1, small=SMALL)
    for size in ({"width": 512, "batch": 4096, "steps": 1}, {"width": 256, "batch": 1024, "steps": 3})
]
FIGURES = [Figure("scaling", "Steps on several processes", CASES, axes=(), minutes=5)]
WORDS = {
    "am": "AM, one process",
    "am data-parallel": "AM, data-parallel",
    "am layer-parallel": "AM, layer-parallel",
    "backprop": "backprop with Adam, one process",
    "backprop DDP": "backprop, DistributedDataParallel",
    "backprop 1F1B": "backprop, pipeline 1F1B",
    "backprop zero bubble": "backprop, pipeline with interleaved zero bubble",
}


@table("scaling")
def times() -> str:
    lines = []
    for case in CASES:
        for name, each in results("scaling").all(case)[0]["found"].items():
            ms = "{median:.1f} ({q1:.1f} to {q3:.1f})".format(**each["milliseconds"])
            ratio = quartiles(each["over_one"]) if " " in name else "1"
            apart = "" if each["difference"] is None else f"{each['difference']:.0e}"
            lines.append([f"{case['width']}, {case['batch']:,}", WORDS[name], ms, ratio, apart])
    head = ["width, rows", "a step by", "milliseconds (quartiles)", "over one process (quartiles)"]
    return markdown([*head, "gradients differ by"], lines)
