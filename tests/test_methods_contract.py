"""What all am-* methods promise: options reach their parts, and a default is the same by name and by composition."""

import inspect

import pytest
import torch
from method_cases import NAMES
from torch import nn

import altmin

ALTERNATING = [name for name in NAMES if name.startswith("am-") and "printed" not in name]


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def solver(method: altmin.methods.Method) -> altmin.GradientCodes:
    return method.codes


def defaults(function: object) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


@pytest.mark.parametrize("name", ALTERNATING)
def test_share_and_order_reach_the_code_solver(name):
    given = solver(altmin.methods.create(name, net(), share=0.3, order="weights-first"))
    assert (given.share, given.order) == (0.3, "weights-first")
    own = altmin.GradientCodes()
    plain, half = solver(altmin.methods.create(name, net())), solver(altmin.methods.create(name, net(), share=0.5))
    assert (plain.share, plain.order) == (own.share, own.order)
    assert (half.share, half.order) == (0.5, own.order)


@pytest.mark.parametrize("name", ALTERNATING)
def test_share_or_order_beside_a_solver_is_refused(name):
    with pytest.raises(ValueError, match="give it to the code solver instead"):
        altmin.methods.create(name, net(), codes=altmin.GradientCodes(), share=0.3)


@pytest.mark.parametrize(
    "name, rule",
    [
        ("am-adam", altmin.LocalAdam),
        ("am-sgd", altmin.LocalSGD),
        ("am-mem", altmin.CoActivationMemory),
        ("am-mem-fitted", altmin.FittedMemory),
    ],
)
def test_defaults_of_a_method_are_those_of_its_weight_rule(name, rule):
    """All options that both have; the learning rate of am-mem-fitted is that of the rule for the other blocks."""
    method, of_rule = defaults(altmin.methods.factory(name)), defaults(rule)
    if name == "am-mem-fitted":
        of_rule["lr"] = rule().rest.lr
    common = method.keys() & of_rule.keys()
    assert {option: method[option] for option in common} == {option: of_rule[option] for option in common}
    others = {"loss", "codes", "share", "order", "penalty", "at", "inputs"}
    assert method.keys() - common == others, "the rest is not the rule's"


@pytest.mark.parametrize("name", ALTERNATING)
def test_parts_of_the_algorithm_are_left_to_the_trainer(name):
    method, trainer = defaults(altmin.methods.factory(name)), defaults(altmin.AltMin)
    for option in ("loss", "codes", "penalty"):
        assert trainer[option] is None
        assert method[option] is None


def test_offline_and_online_rules_share_what_they_do_not_set_themselves():
    """Offline there is one step for all the data, so that rates, momentum, damping, forgetting and an exact fit are its
    own."""
    for name in ("am-adam", "am-mem", "am-mem-fitted"):
        online, offline = (defaults(altmin.methods.factory(each)) for each in (name, f"{name}-offline"))
        common = (online.keys() & offline.keys()) - {"lr", "beta", "damping", "rate", "steps"}
        assert {option: online[option] for option in common} == {option: offline[option] for option in common}
