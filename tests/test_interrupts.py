"""Ctrl-C at any line of a step leaves the state before the step or the one after it."""

import copy
import signal
import sys
from threading import Thread

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import altmin
from altmin.common.interrupts import InterruptsDeferred, autocast_depth
from altmin.stream import OnlineClassifier, OnlineRegressor

X, Y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3


class Own(nn.Module):
    """A module without a closed form, with a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes += 1
        return torch.sin(self.layer(x))


NETS = {
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
    "any module": lambda: nn.Sequential(nn.Linear(4, 8), Own(), nn.Linear(8, 3)),
}


def interrupted(call, line=-1):
    """Call with a SIGINT at the line-th line that is executed; return how many there were, None if it was stopped."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return None
    finally:
        sys.settrace(usual)
    return count


def of_trainer(am):
    tensors = [t for m in am.model.modules() for held in (m._parameters, m._buffers) for t in held.values()]
    numbers = [p.detach().clone() for p in tensors if p is not None]
    modes = [(type(m), m.training) for m in am.model.modules()], [type(t) for t in tensors]
    return copy.deepcopy([numbers, modes, am.state_dict(), torch.is_grad_enabled()])


def of_stream(model):
    net, parts = model._net, [model._statistics, *([model._target] if hasattr(model, "_target") else [])]
    numbers = [vars(part) for part in parts] + ([] if net is None else [net.W, net.P, net.losses, net.noise])
    return copy.deepcopy([numbers, getattr(model, "classes", None), model.feature_names, model._random.random()])


def check_every(step, start, state, lines):
    """Compare the states after interrupts at every `lines`-th line with the old and the new state."""
    new = copy.deepcopy(start)
    states = [state(copy.deepcopy(start))]
    total = interrupted(lambda: step(new))
    states.append(state(new))
    for line in range(1, total + 1, lines):
        one = copy.deepcopy(start)
        try:
            interrupted(lambda one=one: step(one), line)
            now = state(one)
        finally:
            torch.set_grad_enabled(True)
        assert autocast_depth() == 0
        assert any(is_equal(now, each) for each in states), f"line {line} of {total}"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def is_equal(a, b):
    pairs = zip(*map(pytree.tree_leaves, (a, b)), strict=False)
    arrays = (torch.Tensor, np.ndarray)
    numbers = ((p, q) if isinstance(p, arrays) else (p == q, True) for p, q in pairs)
    return pytree.tree_structure(a) == pytree.tree_structure(b) and all(np.array_equal(p, q) for p, q in numbers)


@pytest.mark.parametrize("weights", [altmin.LocalAdam(0.01), altmin.CoActivationMemory()], ids=["adam", "memory"])
@pytest.mark.parametrize("net", NETS)
def test_interrupt_leaves_a_step_taken_or_not(net, weights):
    torch.manual_seed(0)
    am = altmin.AltMin(NETS[net](), weights=weights)
    am.step(X, Y)
    check_every(lambda am: am.step(X, Y), am, of_trainer, 7)


@pytest.mark.parametrize("net", NETS)
def test_interrupt_leaves_the_first_step_taken_or_not(net):
    torch.manual_seed(0)
    check_every(lambda am: am.step(X, Y), altmin.AltMin(NETS[net]()), of_trainer, 31)


@pytest.mark.parametrize("weights", [altmin.LocalAdam(0.01), altmin.CoActivationMemory()], ids=["adam", "memory"])
def test_interrupt_leaves_a_recorded_step_taken_or_not(weights):
    torch.manual_seed(0)
    am = altmin.AltMin(NETS["batch norm"](), weights=weights)

    def begun():
        recorded = altmin.Recorded(copy.deepcopy(am), fuse=False)
        recorded.step(X, Y)
        return recorded

    recorded = begun()
    states = [of_trainer(recorded)]
    total = interrupted(lambda: recorded.step(X, Y))
    states.append(of_trainer(recorded))
    for line in range(1, total + 1, 29):
        recorded = begun()
        try:
            interrupted(lambda recorded=recorded: recorded.step(X, Y), line)
            now = of_trainer(recorded)
        finally:
            torch.set_grad_enabled(True)
        assert any(is_equal(now, each) for each in states), f"line {line} of {total}"


@pytest.mark.parametrize("call", [lambda am: am.gather(X, Y), lambda am: am.apply()], ids=["gather", "apply"])
def test_interrupt_leaves_gathered_parts_whole(call):
    torch.manual_seed(0)
    am = altmin.AltMin(NETS["batch norm"](), check=False)
    am.gather(X, Y)
    check_every(call, am, of_trainer, 5)


SAMPLES = [{"a": 1.0, "b": 2.0}, {"a": 0.5, "b": -1.0}, {"a": 2.0}]


@pytest.mark.parametrize("sample", [{"a": 1.5, "b": 0.5}, {"a": 3.0, "c": 1.0, "d": "red"}], ids=["known", "new"])
@pytest.mark.parametrize(("model", "labels"), [(OnlineClassifier, "xyzu"), (OnlineRegressor, [1.0, 2.0, 0.5, 3.0])])
def test_interrupt_leaves_a_sample_learnt_or_not(model, labels, sample):
    model = model(hidden=(4,), seed=0)
    for x, y in zip(SAMPLES, labels, strict=False):
        model.learn_one(x, y)
    check_every(lambda model: model.learn_one(sample, labels[3]), model, of_stream, 1)


def test_other_threads_take_steps_without_waiting_for_interrupts():
    am, alone = (altmin.AltMin(nn.Sequential(nn.Linear(4, 3))) for _ in range(2))
    alone.model.load_state_dict(am.model.state_dict())
    thread = Thread(target=am.step, args=(X, Y))
    thread.start()
    thread.join()
    alone.step(X, Y)
    assert torch.equal(am.model[0].weight, alone.model[0].weight)


def test_ignored_interrupts_stay_ignored():
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with InterruptsDeferred():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)
