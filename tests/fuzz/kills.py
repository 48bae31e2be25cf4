"""Runs that are killed (SIGKILL) at random moments and resumed, again and again, until they end: the end must be that
of a run that was left alone, bit for bit, and no unfinished file may stay behind.

A run is a forked process, so that torch need not be imported for each.
"""

import os
import signal
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from altmin import methods
from altmin.training import checkpoint, fit

from .judge import picture

METHODS = ("am-adam", "am-sgd", "am-mem", "am-mem-fitted", "am-adam-offline", "am-mem-offline", "adam", "sgd")
RUN: dict[str, Any] = {"epochs": 3, "batch_size": 20, "seed": 3, "eval_batches": [2, 13, 14], "schedule": "cosine"}
PATIENCE = 60.0
"""Seconds after which a run that was left alone has hung."""


def samples(n: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def learner(name: str) -> Any:
    torch.manual_seed(0)
    return methods.create(
        name, nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.2), nn.Linear(7, 3))
    )


def start(name: str, path: Path) -> int:
    """A process that runs to the end, from the checkpoint if there is one; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1)  # threads of the parent are not there any more
        run = {"train": samples(240, 0), "test": samples(40, 1), **RUN}
        fit(learner(name), **run, checkpoint=path, checkpoint_every=1, resume=path.exists())
        status = 0
    except BaseException:
        path.with_name("error").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def wait(child: int, seconds: float) -> int | None:
    """How the process ended, as `os.waitpid` tells; None if it was killed after so many seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else status


def final(path: Path) -> Any:
    """What a finished run came to, without its seconds."""
    state = checkpoint.load(path)
    for row in state["history"]["epochs"]:
        del row["seconds"]
    return picture({name: state[name] for name in ("parts", "history", "random")} | {"at": state["at"]["epoch"]})


def fuzz(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Runs `count` kills, of as many runs as it takes; adds a sentence to `failures` for each run that went wrong."""
    draw = Random(seed)
    counters = {"kills": 0, "kills while writing": 0, "runs": 0}
    alone: dict[str, tuple[Any, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while counters["kills"] < count:
            name = draw.choice(METHODS)
            if name not in alone:
                fit(learner(name), samples(40, 0), epochs=1, batch_size=20)  # so that no child imports anything
                path, begun = Path(folder) / name / "run", time.perf_counter()
                if wait(start(name, path), PATIENCE) != 0:
                    failures.append(f"seed {seed}: {name} did not end when left alone")
                    break
                alone[name] = final(path), time.perf_counter() - begun
            counters["runs"] += 1
            path = Path(folder) / str(counters["runs"]) / "run"
            what = f"run {counters['runs']} of seed {seed}, {name}"
            if not _to_the_end(name, path, alone[name][1], draw, counters, failures, what):
                continue
            if final(path) != alone[name][0]:
                failures.append(f"{what}: it ends otherwise than when left alone")
    return counters


def _to_the_end(
    name: str, path: Path, seconds: float, draw: Random, counters: dict[str, int], failures: list[str], what: str
) -> bool:
    """Kills and resumes a run until it ends; whether it ended well. A run that is left alone takes so many seconds."""
    while True:
        status = wait(start(name, path), seconds * draw.uniform(0.02, 0.6))
        if status is not None:
            if status != 0:
                failures.append(f"{what}: {path.with_name('error').read_text()}")
            return status == 0
        counters["kills"] += 1
        counters["kills while writing"] += any(path.parent.glob(".*.tmp"))
        try:
            if path.exists():
                checkpoint.load(path)
        except ValueError as error:
            failures.append(f"{what}: after a kill {error}")
            return False
