"""What tracing would get wrong is refused with its reason, and a module is left as it was."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graph_cases import Sized
from torch import Tensor, nn

import altmin
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
    Dropped: "training",
    Branching: "training",
    Deciding: "control flow",
    Constant: "register_buffer",
    Noisy: "random numbers",
    NoisyNumpy: "random numbers",
    Remembering: "'last'",
    Counting: "'count'",
    Averaging: "'total'",
    Nothing: "does not depend on its input",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_forward_that_tracing_would_change_is_refused_with_a_remedy_and_left_as_it_was(kind):
    model, make = kind().eval(), altmin.AltMin
    held = [(dict(vars(m)), dict(m._buffers)) for m in model.modules()]
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[2]  # noqa: NPY002
    with pytest.raises(ValueError, match=REFUSED[kind]) as error:
        make(model)
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
