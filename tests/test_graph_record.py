"""What tracing would get wrong is refused with its reason, and a module is left as it was."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graph_cases import Net, Sized
from torch import Tensor, nn

import altmin
from altmin.graph.record import Untraceable, record

REFUSED = {
    "dropout": (lambda net, h: F.dropout(h, 0.5, net.training), "training"),
    "mode": (lambda net, h: h + 1 if net.training else h, "training"),
    "decision": (lambda net, h: h if h.sum() > 0 else -h, "control flow"),
    "constant": (lambda net, h: h + torch.tensor([1.0, 2.0, 3.0, 4.0]), "register_buffer"),
    "noise": (lambda net, h: h * random.random(), "random numbers"),
    "noise of numpy": (lambda net, h: h * float(np.random.rand()), "random numbers"),  # noqa: NPY002
    "memory": (lambda net, h: (setattr(net, "last", h), h)[1], "'last'"),
    "count": (lambda net, h: (setattr(net, "count", net.count + 1), h)[1], "'count'"),
    "average": (lambda net, h: (setattr(net, "mean", 0.9 * net.mean + h.mean(0)), h)[1], "'mean'"),
    "loop": (lambda net, h: sum(row for row in h), r"\(it loops over a value or a size, or unpacks one by \*\); put"),
    "nothing": (lambda net, h: net.mean, "does not depend on its input"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_forward_that_tracing_would_change_is_refused_with_a_remedy_and_left_as_it_was(name):
    between, reason = REFUSED[name]
    kind = type("Constant", (Net,), {"forward": between}) if name == "nothing" else Net
    model, make = kind(between).eval(), altmin.AltMin
    held = [(dict(vars(m)), dict(m._buffers)) for m in model.modules()]
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[2]  # noqa: NPY002
    with pytest.raises(ValueError, match=reason) as error:
        make(model)
    # a block has one input and one output, too
    assert ("train it as one block: nn.Sequential" in str(error.value)) == (name != "nothing")
    assert [(dict(vars(m)), dict(m._buffers)) for m in model.modules()] == held
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[2] == states[2]  # noqa: NPY002


@pytest.mark.parametrize("name", ["dropout", "mode", "decision", "noise", "memory"])
def test_inside_another_model_it_runs_as_one_block(name):
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(3, 4), Net(REFUSED[name][0]), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.inner(self.first(x))))

    assert [str(block) for block in altmin.split(Outer())] == ["Linear", "Net", "Tanh, Linear"]


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
    def broken(net: Net, h: Tensor) -> Tensor:
        raise RuntimeError("no luck.\nmore")

    with pytest.raises(Untraceable, match=r"cannot trace its forward \(no luck\); put"):
        record(Net(broken))
