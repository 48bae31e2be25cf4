"""Modules that do more than their class says, models that change after they were cut, and what is refused."""

import copy

import pytest
import torch
from graph_cases import CASES, Net, TransformerBlock
from torch import Tensor, nn

import altmin
from altmin.calculus.context import LOCAL
from altmin.core.step import encode

F64 = torch.float64


class Skip(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def test_a_sequential_with_a_forward_of_its_own_is_one_module():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), Skip(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2)).double()
    chain, x = altmin.split(model), torch.randn(5, 3, dtype=F64)
    assert len(chain) == 3
    torch.testing.assert_close(encode(chain.blocks, chain.parameters(), x, LOCAL)[0][-1], model(x))
    alone, x = altmin.split(Skip(nn.Linear(4, 4), nn.Linear(4, 4)).double()), torch.randn(5, 4, dtype=F64)
    assert len(alone) == 1
    assert torch.equal(alone(x), alone.model(x))


def hooked() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda module, given, out: 2 * out)
    return layer


def prepared() -> nn.Module:
    layer = nn.ReLU()
    layer.register_forward_pre_hook(lambda module, given: (given[0] - 1,))
    return layer


def patched() -> nn.Module:
    layer = nn.Tanh()
    layer.forward = lambda x: x.sin()  # type: ignore[method-assign]
    return layer


def patched_identity() -> nn.Module:
    layer = nn.Identity()
    layer.register_forward_hook(lambda module, given, out: out + 1)
    return layer


@pytest.mark.parametrize("make", [hooked, prepared, patched, patched_identity])
def test_a_hook_or_a_patched_forward_is_honoured(make):
    torch.manual_seed(0)
    for inner in (make(), nn.Sequential(nn.Linear(4, 4), make())):
        model = nn.Sequential(nn.Linear(3, 4), inner, nn.Linear(4, 2)).double()
        chain, x = altmin.split(model), torch.randn(5, 3, dtype=F64)
        torch.testing.assert_close(encode(chain.blocks, chain.parameters(), x, LOCAL)[0][-1], model(x))


Built = tuple[nn.Module, Tensor, Tensor]


def plain() -> Built:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2))
    return model, torch.randn(5, 3), torch.randint(2, (5,))


def with_a_graph() -> Built:
    model = nn.Sequential(nn.Linear(3, 6), TransformerBlock(6, 4), nn.Flatten(), nn.Linear(24, 2))
    return model, torch.randn(6, 4, 3), torch.randint(2, (6,))


traced = CASES["shared input"].build
CHANGES = {
    "a layer replaced": (plain, lambda m: m.__setitem__(2, nn.Linear(4, 2))),
    "a layer added": (plain, lambda m: m.append(nn.Linear(2, 2))),
    "a layer removed": (plain, lambda m: m.__delitem__(1)),
    "an inner layer replaced": (plain, lambda m: m[0].__setitem__(0, nn.Linear(3, 4))),
    "a parameter replaced": (plain, lambda m: setattr(m[2], "weight", nn.Parameter(torch.zeros(2, 4)))),
    "a hook": (plain, lambda m: m[1].register_forward_hook(lambda *_: None)),
    "a module of a block": (traced, lambda m: setattr(m, "d", nn.Linear(4, 3))),
    "a parameter of the model's own": (traced, lambda m: setattr(m, "shift", nn.Parameter(torch.zeros(4)))),
    "a buffer of the model's own": (traced, lambda m: setattr(m, "scale", torch.zeros(4))),
    "a hook on the model": (traced, lambda m: m.register_forward_hook(lambda *_: None)),
    "a buffer in a graph": (with_a_graph, lambda m: setattr(m[1].attention, "mask", torch.ones(4, 4))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_has_changed_since_it_was_cut_is_refused(name):
    make, change = CHANGES[name]
    model, x, y = make()
    trainer = altmin.AltMin(model)
    trainer.step(x, y)
    change(model)
    with pytest.raises(ValueError, match=r"the model has changed since it was cut .* build a new trainer"):
        trainer.step(x, y)


class Tempered(Net):
    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.widths = 1.0, (4, 4)

    def between(self, h: Tensor) -> Tensor:
        return self.b(h) / self.temperature


@pytest.mark.parametrize("name, value", [("temperature", 0.5), ("widths", (4, 5))])
def test_attributes_that_change_after_the_model_was_cut_are_noticed(name, value):
    torch.manual_seed(0)
    model, batch = Tempered(), (torch.randn(6, 4), torch.randint(3, (6,)))
    am = altmin.AltMin(model)
    am.step(*batch)
    kept, _ = getattr(model, name), setattr(model, name, value)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"a module, parameter or attribute was replaced.*build a new trainer"):
        am.step(*batch)
    assert all(torch.equal(v, before[key]) for key, v in model.state_dict().items())
    setattr(model, name, kept)
    model.eval()
    am.step(*batch)
