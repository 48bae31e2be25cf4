"""Several threads, each training a model of its own with other options, come to the same numbers, bit for bit, as the
same runs one after the other."""

import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import altmin
from altmin.calculus import numbers, products
from altmin.common.fusing import fusing, fusing_now
from altmin.runners import precision

from .drawn_models import Residual
from .judge import picture

STEPS = 12
Batches = list[tuple[Tensor, Tensor]]
Run = Callable[[Callable[[], None]], Any]
"""Trains a fresh model and returns what it came to; it calls the given function before each step."""


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """`count` times all kinds of runs, one after the other and then at once, each time with other weights and data."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-5)  # threads change places as often as they can
    counters = {"runs": 0, "steps": 0}
    try:
        with torch.random.fork_rng(devices=()):
            for number in range(seed, seed + count):
                runs = every_run(number)
                settings = of_torch()
                alone = {name: picture(run(lambda: None)) for name, run in runs.items()}
                together = at_once(runs)
                if of_torch() != settings:
                    failures.append(f"threads --seed {number}: torch's settings were {settings}, now {of_torch()}")
                counters["runs"] += len(runs)
                counters["steps"] += len(runs) * STEPS
                for name, found in together.items():
                    if isinstance(found, Exception):
                        failures.append(f"threads --seed {number}: {name} raised {found!r} beside other threads")
                    elif found != alone[name]:
                        failures.append(f"threads --seed {number}: {name} came to other numbers beside other threads")
    finally:
        torch.set_num_threads(threads)
        sys.setswitchinterval(interval)
    return counters


def of_torch() -> list[bool]:
    """Settings that all threads share, and that a pass of a module may change for a while."""
    cuda = torch.backends.cuda
    kernels = [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()]
    return [torch.backends.mha.get_fastpath_enabled(), *kernels]


def at_once(runs: dict[str, Run]) -> dict[str, Any]:
    """What all runs come to, each in a thread of its own; they wait for each other before every step."""
    barrier, found = threading.Barrier(len(runs)), dict[str, Any]()

    def train(name: str, run: Run) -> None:
        try:
            found[name] = picture(run(barrier.wait))
        except Exception as error:
            found[name] = error
            barrier.abort()

    every = [threading.Thread(target=train, args=each, name=each[0]) for each in runs.items()]
    for thread in every:
        thread.start()
    for thread in every:
        thread.join()
    broken = [each for each in found.values() if not isinstance(each, threading.BrokenBarrierError)]
    return found if len(broken) == len(found) else {k: v for k, v in found.items() if isinstance(v, Exception)}


def every_run(seed: int) -> dict[str, Run]:
    """Every kind of run, by name. Models and data are drawn here, since torch draws from one generator."""
    torch.manual_seed(seed)
    images = [(torch.randn(6, 5), torch.randint(3, (6,))) for _ in range(STEPS)]
    sequences = [(torch.randn(4, 6, 2), torch.randint(3, (4,))) for _ in range(STEPS)]

    def net(middle: nn.Module, kind: type[nn.Module] = nn.Tanh) -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 7), kind(), middle, nn.Linear(7, 3))

    def one(make: Callable[[], nn.Module], batches: Batches, around: Any = nullcontext, **options: Any) -> Run:
        state = make().state_dict()

        def run(wait: Callable[[], None]) -> Any:
            model = make()
            model.load_state_dict(state)
            how = {name: value() if callable(value) else value for name, value in options.items()}
            with around():
                return trained(altmin.AltMin(model, **how), batches, wait)

        return run

    def plain() -> nn.Sequential:
        return net(nn.Sequential(nn.Linear(7, 7), nn.ReLU()))

    def elman() -> nn.Sequential:
        return altmin.models.elman(4, 6, 2, 3)

    return {
        "float32": one(plain, images),
        "products in bfloat16": one(plain, images, lambda: precision.using("bf16")),
        "numbers as tensors": one(plain, images, numbers.tensors),
        "fusing refused": one(plain, images, lambda: fusing(False)),
        "several code steps": one(plain, images, codes=lambda: altmin.GradientCodes(steps=3, momentum=0.5)),
        "memories": one(plain, images, weights=altmin.CoActivationMemory),
        "memories in bfloat16": one(plain, images, lambda: products.rounding(True), weights=altmin.CoActivationMemory),
        "a module of one's own": one(lambda: net(Residual(7)), images),
        "attention": one(lambda: net(attention()), images, codes=lambda: altmin.GradientCodes(share=0.5)),
        "other attention": one(lambda: net(attention()), images, numbers.tensors),
        "sign units": one(lambda: net(nn.Linear(7, 7), altmin.Sign), images, codes="discrete"),
        "codes in time, parallel": one(elman, sequences, codes=lambda: altmin.RecurrentCodes("parallel", rounds=2)),
        "codes in time, in bfloat16": one(elman, sequences, lambda: precision.using("bf16"), codes="sequential"),
        "an ensemble": together(plain, images, "am-adam"),
        "an ensemble of Elman nets": together(elman, sequences, "am-adam"),
        "backprop in bfloat16": by_backprop(plain, images),
    }


def attention() -> nn.Module:
    """A layer of a transformer over the sequence of a batch's samples."""
    return nn.TransformerEncoderLayer(7, 1, 8, dropout=0.0)


def trained(method: Any, batches: Batches, wait: Callable[[], None]) -> Any:
    """What the steps reported, what the model and the method came to, and what the thread saw of the flags."""
    seen = []
    for x, y in batches:
        wait()
        seen.append((method.step(x, y).loss, fusing_now(), numbers.eager(), products._rounds.on))
    return seen, method.model, method.state_dict()


def together(make: Callable[[], nn.Module], batches: Batches, name: str) -> Run:
    states = [make().state_dict() for _ in range(3)]

    def run(wait: Callable[[], None]) -> Any:
        members = []
        for state, lr in zip(states, (1e-3, 1e-2, 3e-2), strict=True):
            model = make()
            model.load_state_dict(state)
            members.append(altmin.methods.create(name, model, lr=lr))
        return trained(altmin.Ensemble(members), batches, wait)

    return run


def by_backprop(make: Callable[[], nn.Module], batches: Batches) -> Run:
    state = make().state_dict()

    def run(wait: Callable[[], None]) -> Any:
        model = make()
        model.load_state_dict(state)
        with precision.using("bf16"):
            return trained(altmin.methods.create("adam", model), batches, wait)

    return run
