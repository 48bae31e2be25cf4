"""Runs of `fit` on one process or on several ranks, for tests: data of each kind, callbacks, and what came of a run."""

import io
import os
from dataclasses import asdict
from typing import Any

import torch
from loop_cases import Pairs, samples
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader

from altmin import AltMin, methods
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.training import EMA, BestWeights, EachBatch, EarlyStopping, ProgressBar, fit

RUN: dict[str, Any] = {"epochs": 2, "batch_size": 9, "seed": 5, "eval_batches": [2, 7], "schedule": "cosine"}
"""50 samples: five batches of 9 and one of 5, of which no rank has as many as another."""


class Noisy(Pairs):
    """Draws from torch's own random state for each sample, as transforms of images do."""

    def __getitem__(self, i: int) -> Any:
        x, y = super().__getitem__(i)
        return x + 0.1 * torch.randn(6, dtype=x.dtype), y


def double(n: int = 50, seed: int = 0) -> Any:
    return samples(n, seed, torch.float64)


def learner(name: str = "am-adam", spread: bool = True, **options: Any) -> Any:
    """Batch norm mixes samples, and dropout draws. A bias before batch norm has no effect, and so a
    gradient of rounding alone, which Adam would divide by itself."""
    torch.manual_seed(3)
    first = nn.Linear(6, 8, bias=False)
    net = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)).double()
    method = methods.create(name, net, lr=0.01, **options)
    return Distributed(method) if spread else method


def source(kind: str, folder: str) -> Any:
    """Training data of a kind; what `fit` is told besides."""
    pair = double()
    if kind == "tensors":
        return pair, RUN
    if kind == "DataLoader":
        given = {**RUN, "batch_size": None}
        return DataLoader(Noisy(*pair), batch_size=9, shuffle=True), given
    assert kind == "augmented"
    return pair, {**RUN, "augment": shifted}


def shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)


KINDS = ["tensors", "DataLoader", "augmented"]


def outcome(method: Any, history: Any) -> Any:
    """Weights, buffers and rows but for their times."""
    rows = asdict(history)
    for row in rows["epochs"]:
        row.pop("seconds")
    return dict(method.model.state_dict()), rows


def trained(kind: str, folder: str, spread: bool = True) -> Any:
    train, how = source(kind, folder)
    method = learner(spread=spread)
    return outcome(method, fit(method, train, double(20, 1), **how))


def small(spread: bool = True) -> Any:
    """Batches of 1, fewer than there are ranks, at the end of each epoch; no batch norm, which needs two."""
    torch.manual_seed(0)
    method: Any = methods.create("adam", nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double())
    method = Distributed(method) if spread else method
    return outcome(method, fit(method, double(13), double(20, 1), epochs=2, batch_size=4))


def layers(path: str, stop: int | None = None, resume: bool = False) -> Any:
    """A net whose blocks are on ranks of their own."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    method: Any = LayerParallel(AltMin(net), micro_batches=2)
    hooks = [EMA(0.5), EachBatch(lambda progress: progress.batch == stop)]
    kept = {"checkpoint": path, "checkpoint_every": 2, "resume": resume, "callbacks": hooks}
    history = fit(method, double(40), double(20, 1), epochs=2, batch_size=10, eval_batches=[3], **kept)
    method.synchronize()
    return outcome(method, history)


def per_sample(name: str, path: str, stop: int | None = None, spread: bool = True, resume: bool = False) -> Any:
    """A method that keeps variables of each sample."""
    torch.manual_seed(4)
    method: Any = methods.create(name, nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)).double())
    method = Distributed(method) if spread else method
    kept = {"checkpoint": path, "checkpoint_every": 2, "resume": resume}
    hooks = [EachBatch(lambda progress: progress.batch == stop)]
    history = fit(method, double(), double(20, 1), epochs=2, batch_size=17, callbacks=hooks, **kept)
    return outcome(method, history)


def stopping(spread: bool = True) -> Any:
    """Stops early and goes back to the best weights; a bar is shown by one rank."""
    method, out = learner(spread=spread), io.StringIO()
    bar = ProgressBar(console=Console(file=out, force_terminal=True))
    hooks = [EarlyStopping(2, "train_loss", min_delta=0.5), BestWeights("test_loss"), bar]
    history = fit(method, double(), double(20, 1), metrics=["loss"], callbacks=hooks, **{**RUN, "epochs": 9})
    return [*outcome(method, history), "loss" in out.getvalue()]


def kept(path: str, epochs: int = 3, stop: int | None = None, spread: bool = True, resume: bool = False) -> Any:
    """A run whose callback stops it after so many batches, if that is given."""

    class Stop:
        def on_batch_end(self, progress: Any) -> bool:
            return progress.batch == stop

    method = learner("am-mem", spread=spread)
    data = {"train": double(), "test": double(20, 1), "callbacks": [Stop()], "resume": resume}
    history = fit(method, **data, **{**RUN, "epochs": epochs}, checkpoint=path, checkpoint_every=4)
    return outcome(method, history)


def error(function: Any, *args: Any, **how: Any) -> str:
    try:
        function(*args, **how)
    except Exception as found:
        return type(found).__name__
    return "nothing"


def two_ranks(rank: int, folder: str, kinds: list[str]) -> dict[str, Any]:
    """All that 2 ranks are asked for."""
    found: dict[str, Any] = {kind: trained(kind, folder) for kind in kinds}
    found["fewer samples than ranks"] = small()
    found["stopping"] = stopping()
    for name in ("admm", "bcd"):
        found[name] = per_sample(name, f"{folder}/{name}")
        per_sample(name, f"{folder}/{name} for one", stop=4)
    layers(f"{folder}/layers", stop=3)
    found["layers"] = layers(f"{folder}/layers", resume=True)
    layers(f"{folder}/for one", stop=3)
    clock = [lambda progress: rank == 1 and progress.epoch == 2]
    one_stops = fit(learner(), double(), callbacks=clock, **{**RUN, "eval_batches": [], "epochs": 9})
    found["epochs of which one rank stops"] = len(one_stops.epochs)
    kept(f"{folder}/two", stop=9)
    kept(f"{folder}/by {rank}", stop=3)
    found["files"] = sorted(os.listdir(folder))
    found["of one process"] = kept(f"{folder}/one", resume=True)
    found["exists"] = error(kept, f"{folder}/two")
    found["seen by one"] = error(kept, f"{folder}/two" if rank == 0 else f"{folder}/elsewhere", resume=True)
    if rank == 1:
        kept(f"{folder}/other", epochs=3, stop=5, spread=False)
    found["another"] = error(kept, f"{folder}/two" if rank == 0 else f"{folder}/other", resume=True)
    found["sampler"] = error(sampled, rank)
    found["seeds"] = error(fit, learner(), double(), epochs=1, batch_size=9, seed=rank)
    return found


def sampled(rank: int) -> None:
    sampler = torch.utils.data.DistributedSampler(Pairs(*double()), 2, rank)
    fit(learner(), DataLoader(Pairs(*double()), batch_size=5, sampler=sampler), epochs=1)
