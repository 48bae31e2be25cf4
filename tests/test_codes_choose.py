"""The code solver that a chain gets, the options that reach it, and what is refused before training."""

from functools import partial

import pytest
import torch
from torch import nn

import altmin
from altmin.core.codes.choose import choose


def net(*activations: nn.Module) -> nn.Sequential:
    """4 inputs, hidden layers of 5 with the given activations, 3 outputs."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for m, activation in zip([4, *[5] * len(activations)], activations, strict=False):
        layers += [nn.Linear(m, 5), activation]
    return nn.Sequential(*layers, nn.Linear(5, 3))


elman = partial(altmin.models.elman, 3, 4, 2)


class Softened(nn.Module):
    """Attention from plain operations, inside a residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + (q @ k.mT).softmax(-1) @ v


TRANSFORMERS = {
    "by torch's function": lambda: altmin.models.gpt(1, 8, 2, 4, 5),
    "by torch's layer": lambda: nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 8), nn.Linear(4, 2)),
    "by hand": lambda: nn.Sequential(nn.Linear(4, 4), Softened(), nn.Linear(4, 2)),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_with_attention_weights_go_first_by_default(name):
    assert altmin.AltMin(TRANSFORMERS[name]()).codes.order == "weights-first"
    assert altmin.methods.create("am-adam", TRANSFORMERS[name](), share=0.2).codes.order == "weights-first"
    assert altmin.methods.create("am-adam", TRANSFORMERS[name](), order="codes-first").codes.order == "codes-first"
    assert altmin.AltMin(TRANSFORMERS[name](), codes=altmin.GradientCodes()).codes.order == "codes-first"
    assert altmin.AltMin(altmin.models.resnet18(2)).codes.order == "codes-first"


def test_a_chain_gets_the_solver_that_fits_it():
    smooth, signs = net(nn.Tanh()), net(altmin.Sign())
    assert type(altmin.AltMin(smooth).codes) is altmin.GradientCodes
    assert type(altmin.AltMin(signs).codes) is altmin.DiscreteCodes
    assert type(altmin.AltMin(net(altmin.StraightThrough(altmin.Sign()))).codes) is altmin.GradientCodes
    assert type(altmin.AltMin(signs, codes="straight-through").codes) is altmin.StraightThroughCodes
    assert type(choose(None, altmin.split(elman()))) is altmin.RecurrentCodes
    given = altmin.GradientCodes()
    assert altmin.AltMin(smooth, codes=given).codes is given


@pytest.mark.parametrize("codes", [None, "discrete"])
def test_beside_a_sign_codes_in_time_keep_their_solver(codes):
    torch.manual_seed(0)
    model = nn.Sequential(altmin.Recurrent(2, 3), altmin.Readout(3, 1), nn.Flatten(), altmin.Sign(), nn.Linear(4, 3))
    am = altmin.AltMin(model, codes=codes)
    assert type(am.codes) is altmin.DiscreteCodes
    assert type(am.codes.gradient) is altmin.RecurrentCodes
    weights = [p for p in model.parameters() if p.ndim > 1]
    before = [p.detach().clone() for p in weights]
    am.step(torch.randn(6, 4, 2), torch.randint(3, (6,)))
    assert all(not torch.equal(a, b) for a, b in zip(before, weights, strict=True))


def test_a_sign_below_the_first_layer_needs_no_search():
    """No code lies below it."""
    binarised_input = nn.Sequential(altmin.Sign(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    am = altmin.AltMin(binarised_input)
    assert type(am.codes) is altmin.GradientCodes
    am.step(torch.randn(6, 4), torch.randint(3, (6,)))


@pytest.mark.parametrize("codes", ["exact", "parallel", altmin.RecurrentCodes("exact")])
def test_codes_in_time_of_a_feed_forward_net_are_refused_by_name(codes):
    with pytest.raises(
        ValueError, match=f"codes='{getattr(codes, 'sweep', codes)}'.* no recurrent layer.*leave codes out"
    ):
        altmin.AltMin(net(nn.Tanh()), codes=codes)


OPTIONS = {"share": 0.25, "order": "weights-first"}


@pytest.mark.parametrize(
    "codes, model",
    [
        (None, net(nn.Tanh())),
        ("gradient", net(nn.Tanh())),
        ("straight-through", net(altmin.Sign())),
        ("exact", elman()),
        (None, elman()),
        ("discrete", net(altmin.Sign())),
    ],
)
def test_options_reach_a_solver_chosen_by_default_or_by_name(codes, model):
    found, plain = (choose(codes, altmin.split(model), **options) for options in (OPTIONS, {}))
    found, plain = (getattr(each, "gradient", each) for each in (found, plain))
    assert (found.share, found.order) == (0.25, "weights-first")
    assert (plain.share, plain.order) == (type(plain)().share, type(plain)().order)


REFUSED = {
    "a derivative": (lambda: net(altmin.Sign(), nn.Tanh()), "gradient"),
    "a derivative, of a solver": (lambda: net(altmin.Sign()), altmin.GradientCodes()),
    "an unknown layer": (
        lambda: nn.Sequential(nn.Linear(4, 5), altmin.Sign(), nn.PReLU(5), nn.Linear(5, 3)),
        "discrete",
    ),
    "two at once": (
        lambda: nn.Sequential(nn.Linear(4, 5), altmin.Sign(), altmin.Staircase(4), nn.Linear(5, 3)),
        "discrete",
    ),
    "above the last layer": (lambda: nn.Sequential(nn.Linear(4, 3), altmin.Sign()), None),
    "inside a block": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 1), nn.MaxPool1d(2), nn.BatchNorm1d(2), altmin.Sign(), nn.Linear(5, 3)),
        "straight-through",
    ),
    "codes in time": (elman, "gradient"),
    "none in time": (lambda: net(nn.Tanh()), "parallel"),
    "an unknown name": (lambda: net(altmin.Sign()), "discret"),
    "a number": (lambda: net(nn.Tanh()), 0.1),
    "a class": (lambda: net(nn.Tanh()), altmin.GradientCodes),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_solver_that_cannot_move_the_codes_is_refused_before_training(kind):
    model, codes = REFUSED[kind]
    with pytest.raises((TypeError, ValueError)):
        altmin.AltMin(model(), codes=codes)


def test_options_beside_a_solver_are_refused():
    with pytest.raises(ValueError):
        choose(altmin.GradientCodes(), altmin.split(net(nn.Tanh())), share=0.1)
