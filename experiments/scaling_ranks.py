"""What the processes of experiments/scaling.py do: the contestants of a run, their times and what they send.

All processes have one thread each and live as long as the run. While a contestant of one process steps, the other
process is blocked in a reduction.
"""

import copy
import itertools
import multiprocessing
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from scaling_cost import data_parallel, layer_parallel, layers, verdict
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleavedZeroBubble

import altmin
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.ranks import bounds

WIRE = Path("/sys/class/net/lo/statistics/tx_bytes")
START = 600
"""Seconds in which all processes must have come to their end."""


@dataclass(frozen=True)
class Size:
    """An MLP of so many blocks, its batch and its micro-batches."""

    blocks: int = 16
    width: int = 256
    batch: int = 1024
    micro_batches: int = 4

    def model(self) -> nn.Sequential:
        """The same on all ranks."""
        torch.manual_seed(0)
        return altmin.models.mlp(self.width, [self.width] * (self.blocks - 1), 10)

    def samples(self) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        return torch.randn(self.batch, self.width), torch.randint(0, 10, (self.batch,))


class Contestant(NamedTuple):
    """step: None where this rank has nothing to do. gradients: those that its last step left, by the names of the whole
    model's parameters, as far as this rank has them."""

    step: Callable[[], Any] | None
    gradients: Callable[[], dict[str, Tensor]]


def _rank(rank: int, size: int, store: str, function: Callable[..., Any], args: Sequence[Any], results: Any) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        results.send_bytes(pickle.dumps((function(rank, *args), "")))
    except BaseException as error:
        results.send_bytes(pickle.dumps((None, f"rank {rank}: {type(error).__name__}: {error}")))
        raise
    dist.destroy_process_group()


def launch(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What function(rank, *args) returns on each of `size` ranks. RuntimeError if one raises or takes too long."""
    context, found, started = multiprocessing.get_context("spawn"), [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(rank, size, f"{folder}/store", function, args, theirs))
            process.start()
            theirs.close()
            started.append((process, ours))
        try:
            for rank, (_, ours) in enumerate(started):
                if not ours.poll(START):
                    raise RuntimeError(f"rank {rank} of {size} did not come to its end in {START} s")
                value, error = pickle.loads(ours.recv_bytes())
                if error:
                    raise RuntimeError(error)
                found.append(value)
            for process, _ in started:
                process.join(START)
        finally:
            for process, _ in started:
                process.kill()
    return found


def of_model(model: nn.Module) -> Callable[[], dict[str, Tensor]]:
    return lambda: {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def alone(method: Any, rank: int, x: Tensor, y: Tensor) -> Contestant:
    return Contestant((lambda: method.step(x, y)) if rank == 0 else None, of_model(method.model))


def together(method: Any, x: Tensor, y: Tensor) -> Contestant:
    return Contestant(lambda: method.step(x, y), of_model(method.model))


def backprop(model: nn.Module) -> Any:
    return altmin.methods.create("adam", model, lr=1e-4, fused=True)


def am(model: nn.Module) -> Any:
    return altmin.AltMin(model, weights=altmin.LocalAdam(lr=1e-4))


def replicated(model: nn.Module, x: Tensor, y: Tensor) -> Contestant:
    """torch's DistributedDataParallel: each rank has its rows, gradients are averaged while the backward pass runs."""
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()

    return Contestant(step, of_model(model))


def pipeline(model: nn.Sequential, size: Size, schedule: Any, rank: int, stages: int) -> Contestant:
    """torch.distributed.pipelining, blocks in equal runs: `stages` of them, every second one on each rank."""
    x, y = size.samples()
    starts = [0, *(i + 1 for i, m in enumerate(model) if isinstance(m, nn.Linear))]  # of blocks, as in a chain
    ends = starts[:: size.blocks // stages]
    parts = [model[a:b] for a, b in itertools.pairwise(ends)]
    own = range(rank, stages, dist.get_world_size())
    held = [PipelineStage(parts[s], s, stages, torch.device("cpu")) for s in own]
    given: Any = held if stages > dist.get_world_size() else held[0]
    runs = schedule(given, size.micro_batches, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.Adam([p for s in own for p in parts[s].parameters()], lr=1e-4, fused=True)
    inputs, targets = ((x,) if 0 in own else ()), ({"target": y} if stages - 1 in own else {})
    names = {id(p): name for name, p in model.named_parameters()}

    def step() -> None:
        optimizer.zero_grad()
        runs.step(*inputs, **targets)
        optimizer.step()

    def gradients() -> dict[str, Tensor]:
        return {names[id(p)]: p.grad for s in own for p in parts[s].parameters() if p.grad is not None}

    return Contestant(step, gradients)


def layered(rank: int, size: Size) -> LayerParallel:
    return LayerParallel(am(size.model()), size.micro_batches, cuts=[size.blocks // 2])


def in_layers(run: LayerParallel, x: Tensor, y: Tensor) -> Contestant:
    own = {id(p) for l in run.blocks for p in run.theta[l]}

    def gradients() -> dict[str, Tensor]:
        return {name: p.grad for name, p in run.model.named_parameters() if id(p) in own and p.grad is not None}

    return Contestant(lambda: run.step(x, y), gradients)


def contestants(rank: int, size: Size) -> dict[str, Contestant]:
    """All that are timed, each with a model of its own."""
    x, y = size.samples()
    first, end = bounds(size.batch, rank, dist.get_world_size())
    return {
        "am": alone(am(size.model()), rank, x, y),
        "am data-parallel": together(Distributed(am(size.model())), x, y),
        "am layer-parallel": in_layers(layered(rank, size), x, y),
        "backprop": alone(backprop(size.model()), rank, x, y),
        "backprop DDP": replicated(size.model(), x[first:end], y[first:end]),
        "backprop 1F1B": pipeline(size.model(), size, Schedule1F1B, rank, 2),
        "backprop zero bubble": pipeline(size.model(), size, ScheduleInterleavedZeroBubble, rank, 4),
    }


EXACT = {
    "am data-parallel": "am",
    "am layer-parallel": "am in parts",
    "backprop DDP": "backprop",
    "backprop 1F1B": "backprop",
    "backprop zero bubble": "backprop",
}
"""Whose first gradients must be those of one process, and of which."""


def references(size: Size) -> dict[str, Any]:
    """Methods of one process after one step; "am in parts" has gathered the micro-batches one by one."""
    x, y = size.samples()
    found = {"am": am(size.model()), "am in parts": am(size.model()), "backprop": backprop(size.model())}
    for name in ("am", "backprop"):
        found[name].step(x, y)
    for part in range(size.micro_batches):
        first, end = bounds(size.batch, part, size.micro_batches)
        found["am in parts"].gather(x[first:end], y[first:end])
    found["am in parts"].apply()
    return found


def differences(found: dict[str, Contestant], size: Size) -> dict[str, float]:
    """Of the first gradients of several processes from those of one, over the largest of each parameter's; the largest
    on any rank. All processes compute the gradients of one for themselves. Every contestant has stepped once then.
    RuntimeError if a parameter has no gradient on any rank."""
    one = references(size)
    for each in found.values():
        if each.step is not None:
            each.step()
    result = {}
    for name, alike in EXACT.items():
        grads, ours = of_model(one[alike].model)(), found[name].gradients()
        known = torch.tensor([float(p in ours) for p in grads])
        dist.all_reduce(known)
        if not bool(known.all()):
            raise RuntimeError(f"{name} has left parameters without a gradient")
        worst = torch.tensor([max(((g - grads[p]).abs().max() / grads[p].abs().max()).item() for p, g in ours.items())])
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        result[name] = worst.item()
    return result


def measured(rank: int, size: Size, repeats: int, steps: int) -> dict[str, Any]:
    """Seconds of a step of each contestant, `repeats` times: the mean of `steps` steps, on the slower rank. In every
    round all are measured, one after the other, beginning with another one; the first round is not counted."""
    found = contestants(rank, size)
    result: dict[str, Any] = {"differences": differences(found, size), "seconds": {name: [] for name in found}}
    names = list(found)
    for turn in range(repeats + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            step = found[name].step
            dist.barrier()
            started = time.perf_counter()
            for _ in range(steps if step is not None else 0):
                step()  # type: ignore[misc]
            took = torch.tensor([time.perf_counter() - started])
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if turn:
                result["seconds"][name].append(took.item() / steps)
    return result


def on_the_wire() -> int:
    return int(WIRE.read_text())


MADE = {
    "am": am,
    "am-mem-fitted": lambda model: altmin.AltMin(model, weights=altmin.FittedMemory()),
    "backprop": backprop,
}


def sent(rank: int, nets: dict[str, tuple[Sequence[int], torch.dtype]], steps: int) -> list[dict[str, Any]]:
    """Bytes and messages of a data-parallel step of every method on every net: by the model, by the ranks' counters,
    and on the network interface, where nothing else may be going on; the latter for each rank, with the headers of gloo
    and TCP. nets: of each name the shape of a sample, and the type of its numbers."""
    rows = []
    for (name, (shape, dtype)), method in itertools.product(nets.items(), MADE):
        torch.manual_seed(0)
        model = altmin.models.create(name, shape, 10).to(dtype)
        x, y = torch.rand(64, *shape, dtype=dtype), torch.arange(64) % 10
        net = layers(copy.deepcopy(model), x)
        if method == "am-mem-fitted" and all(layer.memory is None for layer in net):
            continue  # it is am then
        each = Distributed(MADE[method](model))
        each.step(x, y)
        dist.barrier()
        before, wire = (each.ranks.messages, each.ranks.bytes), on_the_wire()
        for _ in range(steps):
            each.step(x, y)
        dist.barrier()
        wire = on_the_wire() - wire
        said = data_parallel(net, method, dtype.itemsize)
        rows.append(
            {
                "model": name,
                "dtype": str(dtype).removeprefix("torch."),
                "method": method,
                "messages": (each.ranks.messages - before[0]) / steps,
                "bytes": (each.ranks.bytes - before[1]) / steps,
                "model_messages": said.messages,
                "model_bytes": said.bytes,
                "model_sent": said.sent(dist.get_world_size()),
                "on_the_wire": wire / steps / dist.get_world_size(),
            }
        )
    return rows


def sent_by_layers(rank: int, size: Size, steps: int) -> dict[str, Any]:
    """The same of a layer-parallel step, on both ranks together."""
    run = layered(rank, size)
    x, y = size.samples()
    run.step(x, y)
    dist.barrier()
    before, wire = run.ranks.bytes, on_the_wire()
    for _ in range(steps):
        run.step(x, y)
    dist.barrier()
    wire = on_the_wire() - wire
    counted = torch.tensor([(run.ranks.bytes - before) / steps], dtype=torch.float64)
    dist.all_reduce(counted)
    said = layer_parallel(layers(size.model(), x), run.bounds[1:-1], size.batch, size.micro_batches)
    return {
        "bytes": counted.item(),
        "model_bytes": sum(b.up + b.down for b in said) + 2 * verdict(size.blocks, 2),
        "on_the_wire": wire / steps,
    }
