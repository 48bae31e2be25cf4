"""A piece of a graph is an ordinary module: it runs, copies, pickles and trains as what it was cut from."""

import copy
import pickle

import pytest
import torch
from graph_cases import CASES, F64, Net, SharedInput, as_backprop
from torch import Tensor, nn

import altmin
from altmin import methods
from altmin.graph.piece import Piece


def test_modules_in_a_row_are_one_module():
    a, b = nn.Linear(3, 3), nn.Tanh()
    piece, x = Piece.of([a, b, a]), torch.randn(2, 3)
    assert torch.equal(piece(x), a(b(a(x))))
    assert [id(p) for p in piece.parameters()] == [id(p) for p in a.parameters()]
    assert repr(piece).startswith("(Linear, Tanh, Linear)(")


def in_place(net: Net, h: Tensor) -> Tensor:
    """It begins with an operation in place, whose result nobody uses."""
    h.mul_(2)
    y = net.b(h)
    y += h
    return net.relu(y)


def test_an_operation_in_place_leaves_the_code_before_it_alone():
    torch.manual_seed(0)
    model, x = Net(in_place).double(), torch.randn(5, 4, dtype=F64)
    chain = altmin.split(model)
    with torch.no_grad():
        assert torch.equal(chain(x), model(x))
        code = chain.blocks[0].forward([p.detach() for p in chain.blocks[0].parameters()], x)[0]
        before = code.clone()
        for m in chain.blocks[1].maps:
            m.module(code)
    assert torch.equal(code, before)
    as_backprop(model, x, torch.randint(3, (5,)))


@pytest.mark.parametrize("name", ["residual", "shared input", "masked"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda am: pickle.loads(pickle.dumps(am))], ids=["copy", "pickle"])
def test_a_copied_trainer_goes_on_as_the_original_by_itself(name, copied):
    model, x, y = CASES[name].build()
    am = altmin.AltMin(model, CASES[name].loss)
    am.step(x, y)
    other = copied(am)
    untouched = copy.deepcopy(other.model.state_dict())
    torch.manual_seed(3)
    am.step(x, y)
    assert all(torch.equal(a, b) for a, b in zip(untouched.values(), other.model.state_dict().values(), strict=True))
    torch.manual_seed(3)
    other.step(x, y)
    ours, theirs = am.model.state_dict(), other.model.state_dict()
    assert list(ours) == list(untouched)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", CASES)
def test_no_graph_crosses_a_block_of_a_traced_model(name):
    model, x, y = CASES[name].build()
    before = copy.deepcopy(model.state_dict())
    found = altmin.audit(altmin.AltMin(model, CASES[name].loss), x, y)
    assert found.clean
    assert [f.name.partition(" (")[2] for f in found.findings[:-1]] == [f"{block})" for block in CASES[name].blocks]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_buffers_of_pieces_stay_the_models_in_an_ensemble_and_others_are_noticed():
    ensemble = altmin.Ensemble([methods.create("am-adam", SharedInput()) for _ in range(2)])
    x, y = torch.randn(6, 5), torch.randint(3, (6,))
    with torch.no_grad():
        ensemble.member(1).scale.zero_()  # nothing but the last bias reaches the output then
    for i in range(2):
        before = ensemble.member(i).a.weight.clone()
        ensemble.methods[i].step(x, y)
        assert torch.equal(before, ensemble.member(i).a.weight) == (i == 1)
    ensemble.member(0).scale = torch.ones(4)
    with pytest.raises(ValueError, match="the model has changed since it was cut"):
        ensemble.step(x, y)


def test_a_module_and_one_inside_it_are_both_places_to_cut():
    model, x, _ = CASES["residual"].build()
    chain = altmin.split(model, at=["layer1.1.conv1", "layer1", "layer2"])
    assert [block.code_shape() for block in chain][:1] == ["2: layer1.1.conv1, layer1.0"]
    assert len(chain) == 4
    torch.testing.assert_close(chain(x), model(x), rtol=1e-12, atol=1e-12)
