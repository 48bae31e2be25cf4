"""Several threads, each training a model of its own with other options, come to the same numbers, bit for bit, as the
same runs one after the other."""

import copy
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import altmin
from altmin.calculus.context import Context

from .drawn_models import Residual
from .judge import picture

STEPS = 12
Run = Callable[[Callable[[], Any]], Any]
"""Trains a copy of a model and returns a picture of what it came to; it calls the given function before each step."""


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """`count` times all kinds of runs, one after the other and then at once, each time with other weights and data."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-5)  # threads change places as often as they can
    counters = {"runs": 0, "steps": 0}
    with torch.random.fork_rng(devices=()):
        for number in range(seed, seed + count):
            runs, settings = every_run(number), of_torch()
            alone = {name: run(lambda: None) for name, run in runs.items()}
            together = at_once(runs)
            counters["runs"] += len(runs)
            counters["steps"] += len(runs) * STEPS
            if of_torch() != settings:
                failures.append(f"threads --seed {number}: torch's settings were {settings}, now {of_torch()}")
            for name, found in together.items():
                if isinstance(found, Exception):
                    failures.append(f"threads --seed {number}: {name} raised {found!r} beside other threads")
                elif found != alone[name]:
                    failures.append(f"threads --seed {number}: {name} came to other numbers beside other threads")
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)
    return counters


def of_torch() -> list[bool]:
    """Settings that all threads share, and that a pass of a module may change for a while."""
    cuda = torch.backends.cuda
    kernels = [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()]
    return [torch.backends.mha.get_fastpath_enabled(), *kernels]


def at_once(runs: dict[str, Run]) -> dict[str, Any]:
    """What all runs come to, each in a thread of its own; they wait for each other before every step. If one breaks
    off, the others' complaints about that are left out."""
    barrier, found = threading.Barrier(len(runs)), dict[str, Any]()

    def train(name: str, run: Run) -> None:
        try:
            found[name] = run(barrier.wait)
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            found[name] = error
            barrier.abort()

    every = [threading.Thread(target=train, args=each) for each in runs.items()]
    for thread in every:
        thread.start()
    for thread in every:
        thread.join()
    return found


def every_run(seed: int) -> dict[str, Run]:
    """Every kind of run, by name. Models and data are drawn here, since torch draws from one generator."""
    torch.manual_seed(seed)
    images = [(torch.randn(6, 5), torch.randint(3, (6,))) for _ in range(STEPS)]
    sequences = [(torch.randn(4, 6, 2), torch.randint(3, (4,))) for _ in range(STEPS)]

    def net(middle: nn.Module, kind: type[nn.Module] = nn.Tanh) -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 7), kind(), middle, nn.Linear(7, 3))

    def plain() -> nn.Sequential:
        return net(nn.Sequential(nn.Linear(7, 7), nn.ReLU()))

    def elman() -> nn.Sequential:
        return altmin.models.elman(4, 6, 2, 3)

    def attention(batch_first: bool = False) -> nn.Sequential:
        """Over the sequence of a batch's samples."""
        return net(nn.TransformerEncoderLayer(7, 1, 8, dropout=0.0, batch_first=batch_first))

    def run(model: nn.Module, make: Callable[[Any], Any] = altmin.AltMin, bf16: bool = False) -> Run:
        """make: the method for a copy of the model."""
        batches = sequences if "Recurrent" in str(model) else images

        def train(wait: Callable[[], Any]) -> Any:
            how = {"context": Context(bf16=True)} if bf16 else {}
            method, losses = make(copy.deepcopy(model)), []
            for x, y in batches:
                wait()
                losses.append(method.step(x, y, **how).loss)
            return picture((losses, method.model, method.state_dict()))

        return train

    def called(model: nn.Module, build: bool = False) -> Run:
        """Calls a model in evaluation, as its user may. build: whether a trainer of a copy is built each time."""

        def call(wait: Callable[[], Any]) -> Any:
            outputs = []
            for x, _ in images:
                wait()
                outputs.append((altmin.AltMin(copy.deepcopy(model)).chain if build else model)(x).detach())
            return picture(outputs)

        return call

    def am(**options: Callable[[], Any]) -> Callable[[Any], Any]:
        return lambda model: altmin.AltMin(model, **{name: make() for name, make in options.items()})

    def together(members: nn.ModuleList) -> altmin.Ensemble:
        rates = zip(members, (1e-3, 1e-2, 3e-2), strict=True)
        return altmin.Ensemble([altmin.methods.create("am-adam", model, lr=lr) for model, lr in rates])

    return {
        "float32": run(plain()),
        "products in bfloat16": run(plain(), bf16=True),
        "several code steps": run(plain(), am(codes=lambda: altmin.GradientCodes(steps=3, momentum=0.5))),
        "memories": run(plain(), am(weights=altmin.FittedMemory)),
        "memories in bfloat16": run(plain(), am(weights=altmin.FittedMemory), bf16=True),
        "a module of one's own": run(net(Residual(7))),
        "attention": run(attention(), am(codes=lambda: altmin.GradientCodes(share=0.5))),
        "attention in use": called(attention(batch_first=True).eval()),
        "trainers that are built": called(net(Residual(7)), build=True),
        "sign units": run(net(nn.Linear(7, 7), altmin.Sign), am(codes=lambda: "discrete")),
        "codes in time, parallel": run(elman(), am(codes=lambda: altmin.RecurrentCodes("parallel", rounds=2))),
        "codes in time, in bfloat16": run(elman(), am(codes=lambda: "sequential"), bf16=True),
        "an ensemble": run(nn.ModuleList(plain() for _ in range(3)), together),
        "an ensemble of Elman nets": run(nn.ModuleList(elman() for _ in range(3)), together),
        "backprop in bfloat16": run(plain(), lambda model: altmin.methods.create("adam", model), bf16=True),
    }
