"""What tracing would get wrong is refused with its reason, and a module is left as it was."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graph_cases import Sized
from torch import Tensor, nn

import altmin
from altmin.calculus import map_of
from altmin.graph.record import Untraceable, record


class Net(nn.Module):
    """A layer, what a subclass does after it, and another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.count = nn.Linear(3, 3), nn.Linear(3, 2), 0
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self.a(x)))

    def between(self, x: Tensor) -> Tensor:
        return x


class Dropped(Net):
    def between(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


class Branching(Net):
    def between(self, x: Tensor) -> Tensor:
        return x + 1 if self.training else x


class Deciding(Net):
    def between(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Constant(Net):
    def between(self, x: Tensor) -> Tensor:
        return x + torch.tensor([1.0, 2.0, 3.0])


class Noisy(Net):
    def between(self, x: Tensor) -> Tensor:
        return x * random.random()


class NoisyNumpy(Net):
    def between(self, x: Tensor) -> Tensor:
        return x * float(np.random.rand())  # noqa: NPY002


class Remembering(Net):
    def between(self, x: Tensor) -> Tensor:
        self.last = x
        return x


class Counting(Net):
    def between(self, x: Tensor) -> Tensor:
        self.count += 1
        return x


class Averaging(Net):
    def between(self, x: Tensor) -> Tensor:
        self.total = 0.9 * self.total + x.mean(0)
        return x


class Nothing(Net):
    def forward(self, x: Tensor):
        return self.total


REFUSED = {
    Dropped: r"asks whether it is in training \(self\.training\); use modules such as nn\.Dropout",
    Branching: r"asks whether it is in training",
    Deciding: r"cannot trace its forward \(.*control flow\); put the part .* into a module of its own",
    Constant: r"uses a tensor that is neither parameter nor buffer; register it with register_buffer",
    Noisy: r"draws random numbers, which tracing would fix",
    NoisyNumpy: r"draws random numbers, which tracing would fix",
    Remembering: r"sets the attribute 'last'",
    Counting: r"sets the attribute 'count'",
    Averaging: r"sets the attribute 'total'",
    Nothing: r"output does not depend on its input",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_forward_that_tracing_would_change_is_refused_with_a_remedy_and_left_as_it_was(kind):
    model = kind().eval()
    held = [(dict(vars(m)), dict(m._buffers)) for m in model.modules()]
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[2]  # noqa: NPY002
    with pytest.raises(ValueError, match=rf"{kind.__name__} cannot be cut into blocks: .*{REFUSED[kind]}") as error:
        altmin.AltMin(model)
    # a block has one input and one output, too
    assert ("train it as one block: nn.Sequential" in str(error.value)) == (kind is not Nothing)
    assert [(dict(vars(m)), dict(m._buffers)) for m in model.modules()] == held
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[2] == states[2]  # noqa: NPY002


@pytest.mark.parametrize("kind", [Dropped, Branching, Deciding, Noisy, Remembering])
def test_inside_another_model_it_runs_as_one_block(kind):
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(3, 3), kind(), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.inner(self.first(x))))

    assert [str(block) for block in altmin.split(Outer())] == ["Linear", kind.__name__, "Tanh, Linear"]


def test_sizes_assertions_defaults_and_factories_are_recorded():
    model, x = Sized().double(), torch.randn(3, 4, dtype=torch.float64)
    chain = altmin.split(model)
    assert torch.equal(chain(x), model(x))
    with pytest.raises(AssertionError, match="an assertion in forward fails"):
        chain(torch.randn(3, 5, dtype=torch.float64))
    assert torch.arange(2).tolist() == [0, 1]


def test_other_threads_notice_nothing_of_a_trace():
    """While one thread is inside a forward that is traced, another calls modules and factories as ever."""
    found: list[Tensor] = []
    layer = nn.Linear(2, 2)

    def work() -> None:
        found.append(layer(torch.ones(1, 2)) - layer.bias)

    class Waiting(Net):
        def between(self, x: Tensor) -> Tensor:
            other = threading.Thread(target=work)
            other.start()
            other.join()
            return x

    record(Waiting())
    assert all(
        torch.equal(each, layer.weight.sum(1)[None]) or torch.allclose(each, layer.weight.sum(1)[None])
        for each in found
    )
    assert len(found) == 2, "once for each mode"


def test_hooks_on_the_model_are_refused():
    model = Net()
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"Net has hooks, .* or train it as one block: nn\.Sequential\(model\)"):
        altmin.split(model)
    assert len(altmin.split(nn.Sequential(model))) == 1


def test_an_error_of_the_forward_is_its_reason():
    class Broken(Net):
        def between(self, x: Tensor) -> Tensor:
            raise RuntimeError("no luck.\nmore")

    with pytest.raises(Untraceable, match=r"cannot trace its forward \(no luck\); put"):
        record(Broken())


class Waiting(Net):
    """Stops within its forward until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.free = threading.Event(), threading.Event()

    def between(self, x: Tensor) -> Tensor:
        self.inside.set()
        assert self.free.wait(60)
        return x


@contextmanager
def within(use: Callable[[Waiting], Any]) -> Iterator[None]:
    """While another thread is in the forward of a module by a function that takes one."""
    waiting = Waiting()
    thread = threading.Thread(target=use, args=(waiting,))
    thread.start()
    assert waiting.inside.wait(60)
    try:
        yield
    finally:
        waiting.free.set()
        thread.join()


def passed(waiting: Waiting) -> None:
    map_of(waiting).forward(tuple(waiting.parameters()), torch.ones(2, 3))


def test_a_compiled_function_runs_while_another_thread_traces() -> None:
    """Torch refuses to run one within a trace."""
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with within(record):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_modules_called_while_another_thread_traces_keep_their_functions() -> None:
    """torch.fx puts wrappers in the place of functions of `math` beside the forward of a module that it traces."""
    source = "from math import sqrt\ndef forward(self, x): return x * sqrt(4)"
    names: dict[str, Any] = {}
    exec(source, names)
    before, module = names["sqrt"], type("Root", (nn.Module,), {"forward": names["forward"]})()
    with within(record):
        assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
        assert names["sqrt"] is before


@pytest.mark.parametrize("use", [record, passed])
def test_a_process_that_is_forked_while_a_thread_is_in_a_module_builds_and_trains(
    use: Callable[[Waiting], Any],
) -> None:
    unpatched = nn.Module.__call__, nn.Module.__getattr__, torch.zeros
    model = nn.Sequential(Net(), nn.TransformerEncoderLayer(2, 1, 2))
    with within(use):
        child = os.fork()
        if not child:
            try:
                signal.alarm(60)  # ends a child that hangs
                altmin.AltMin(model).step(torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))
                assert (nn.Module.__call__, nn.Module.__getattr__, torch.zeros) == unpatched
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
