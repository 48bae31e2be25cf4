"""The recurrent layers against their formulas, padding, and what is said of a bad argument."""

import copy

import pytest
import torch
from conftest import elman_problem as problem
from conftest import residuals_of
from reference_recurrent import Layer
from torch import Tensor, nn

import altmin

close = torch.testing.assert_close

# -- the layers -------------------------------------------------------------------------------------------------------


def by_hand(model: nn.Sequential, x: Tensor) -> Tensor:
    """The output for one sequence, from the formulas; a short one is followed by zeros."""
    cell, readout, classifier = model[0], model[1], model[-1]
    p = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0
    z = (Layer(nn.RNN, p, [x]).encode()[1] @ readout.weight.T).flatten().clamp_min(0)
    return classifier.weight[:, : len(z)] @ z + classifier.bias


def test_the_model_is_the_loop_it_stands_for():
    model, x, _ = problem()
    close(model(x), torch.stack([by_hand(model, s) for s in x]))


def test_padding_changes_nothing_whatever_it_holds():
    model, x, _ = problem(padded=True, samples=5)
    wanted = torch.stack([by_hand(model, s[s[:, -1] == 1, :-1]) for s in x])
    close(model(x), wanted)
    x[..., :-1] += 7 * (1 - x[..., -1:])
    close(model(x), wanted)


def test_all_after_the_first_zero_of_the_mark_is_padding():
    model, x, _ = problem(padded=True, samples=5, steps=6)
    marked = x.clone()
    marked[3, 5, -1] = 1  # beyond its four steps
    close(model[0](marked), model[0](x))


def test_a_step_of_training_does_not_see_what_padding_holds():
    model, x, y = problem(padded=True, samples=5)
    other, filled = copy.deepcopy(model), x.clone()
    filled[..., :-1] += 7 * (1 - x[..., -1:])
    for sweep in ("parallel", "exact"):
        altmin.AltMin(model, codes=altmin.RecurrentCodes(sweep)).step(x, y)
        altmin.AltMin(other, codes=altmin.RecurrentCodes(sweep)).step(filled, y)
    close([*model.parameters()], [*other.parameters()])


def test_the_second_bias_is_zero_and_stays_so_under_backprop_too():
    model, x, y = problem()
    for method in ("adam", "am-adam"):
        altmin.methods.create(method, model).step(x, y)
    assert not model[0].bias_hh_l0.any()
    assert model[0].bias_ih_l0.any()


@pytest.mark.parametrize("codes", [{}, {"share": 1.0}, {"sweep": "parallel"}], ids=str)
def test_padding_has_no_codes_even_where_its_readout_is_asked_to_move(codes):
    model, x, y = problem(padded=True, samples=5)
    model[1] = altmin.Readout(4, 1).double()
    nn.init.ones_(model[1].bias)
    padding = x[..., -1] == 0
    for order in ("codes-first", "weights-first"):
        cell, readout, _ = residuals_of(model, altmin.RecurrentCodes(order=order, **codes), x, y, 0.7)
        assert readout.upstream[padding].abs().max() > 0.001
        close(readout.delta[padding], readout.upstream[padding])
        assert not cell.delta[padding].any()
        assert cell.delta[~padding].abs().max() > 0.0001


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: altmin.RecurrentCodes("backwards"),
        lambda: altmin.RecurrentCodes(share=2),
        lambda: altmin.models.elman(3)(torch.zeros(4, 784)),
        lambda: altmin.AltMin(altmin.models.elman(3, 5, padded=True)).step(torch.zeros(4, 5, 1), torch.zeros(4).long()),
        lambda: altmin.AltMin(nn.Sequential(altmin.Recurrent(1, 3), altmin.Sign(), nn.Linear(3, 2))),
        lambda: altmin.AltMin(
            nn.Sequential(altmin.Recurrent(1, 3), altmin.StraightThrough(altmin.Sign()), nn.Linear(3, 2))
        ),
        lambda: altmin.AltMin(altmin.models.gru(4), codes="parallel"),
    ],
)
def test_what_cannot_be_is_refused(call):
    with pytest.raises(ValueError):
        call()
