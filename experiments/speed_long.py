"""Whole runs on a GPU, by the clock on the wall: an epoch of HIGGS, five seeds of MNIST, 64 settings at once.

Recording is part of a run; compiling, which takes some twenty seconds once, comes before.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from common import Row

import altmin
from altmin.cli import output
from altmin.methods import Method
from altmin.training import train_on_device

DEVICE = "cuda"
HIGGS_ROWS = 10_500_000


def measure(file: Path, quick: bool) -> None:
    """All of them, into one file; `quick` with a hundredth of the samples or epochs."""
    if not torch.cuda.is_available():
        raise ValueError(
            "the long runs need a CUDA device, and torch finds none here; run them on a machine with a GPU"
        )
    rows = []
    for run in (higgs_epoch, five_seeds, many_settings):
        rows.append(run(quick))
        print(json.dumps(rows[-1]), flush=True)
    file.parent.mkdir(exist_ok=True)
    result = {"environment": output.environment(torch.device(DEVICE)), "quick": quick, "results": rows}
    file.write_text(json.dumps(result, indent=2) + "\n")


def higgs_epoch(quick: bool) -> Row:
    """One epoch over as many samples as HIGGS has, of its shape."""
    count = HIGGS_ROWS // (100 if quick else 1)
    torch.manual_seed(0)
    x = torch.randn(count, 28, device=DEVICE)
    y = (x @ torch.randn(28, device=DEVICE) > 0).long()
    train(build("mlp-1x300", (28,), 2, seed=0), x[:400], y[:400], epochs=1, seeds=[0])  # compiles
    method = build("mlp-1x300", (28,), 2, seed=0)
    seconds, losses = timed(lambda: train(method, x, y, epochs=1, seeds=[0], shuffle="device"))
    return {"name": "higgs-epoch", "seconds": seconds, "updates": -(-count // 200), "losses": losses}


def five_seeds(quick: bool) -> Row:
    """Fifty epochs of MNIST, five seeds side by side."""
    epochs, seeds = 1 if quick else 50, range(5)
    x, y = mnist()

    def crew() -> altmin.Ensemble:
        return altmin.Ensemble([build("mlp-2x100", x.shape[1:], 10, seed) for seed in seeds])

    train(crew(), x[:400], y[:400], epochs=1, seeds=list(seeds))  # compiles
    chosen = crew()
    seconds, losses = timed(lambda: train(chosen, x, y, epochs=epochs, seeds=list(seeds)))
    return {"name": "five-seeds", "seconds": seconds, "epochs": epochs, "losses": losses}


def many_settings(quick: bool) -> Row:
    """The time of an epoch with 64 learning rates over that with one, in turns. Starting up is taken off."""
    x, y = mnist()
    rates = torch.logspace(-4, -2, 64).tolist()

    def epoch_seconds(rates: Sequence[float]) -> float:
        def run(epochs: int) -> float:
            each = [build("mlp-2x100", x.shape[1:], 10, 0, lr=lr) for lr in rates]
            method = each[0] if len(each) == 1 else altmin.Ensemble(each)
            return timed(lambda: train(method, x, y, epochs=epochs, seeds=[0] * len(each)))[0]

        run(1)  # compiles
        return (run(4) - run(1)) / 3

    pairs = [(epoch_seconds(rates), epoch_seconds(rates[32:33])) for _ in range(1 if quick else 3)]
    many, one = (statistics.median(values) for values in zip(*pairs, strict=True))
    return {
        "name": "many-settings",
        "seconds": many,
        "seconds_of_one": one,
        "ratio": many / one,
        "settings": len(rates),
    }


def build(model: str, shape: Sequence[int], classes: int, seed: int, **options: Any) -> Method:
    torch.manual_seed(seed)
    net = altmin.models.create(model, tuple(shape), classes).to(DEVICE)
    return altmin.methods.create("am-adam", net, **options)


def train(
    method: Any, x: torch.Tensor, y: torch.Tensor, epochs: int, seeds: Sequence[int], shuffle: str = "fit"
) -> Any:
    """Mean losses of the epochs; the step is recorded and the data stay on the GPU."""
    return train_on_device(method, x, y, batch_size=200, epochs=epochs, seeds=seeds, shuffle=shuffle)


def mnist() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = altmin.data.load("mnist", "train")
    return x.to(DEVICE), y.to(DEVICE)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds on the wall, and what the run returns as plain numbers."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    found = run()
    torch.cuda.synchronize()
    return time.perf_counter() - start, torch.as_tensor(found).tolist()
