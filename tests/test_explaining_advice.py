"""Each piece of advice is given where its reason holds, and nowhere else."""

import math
from typing import Any

import pytest
import torch
from explained import batch, explained, facts, net, row
from torch import nn

import altmin
from altmin.explaining.advice import RULES, advise
from altmin.explaining.rows import Milliseconds

QUIET = ["Nothing stands out: every block learns, along gradients near backprop's."]


def said(*changes: dict[str, Any], **about: Any) -> list[str]:
    """The advice for three blocks, of which the first ones have these changes."""
    all_changes = [*changes, *[{}] * (3 - len(changes))]
    return advise([row(l, **each) for l, each in enumerate(all_changes)], facts(**about))


def test_where_nothing_stands_out_one_sentence_says_so() -> None:
    assert said() == QUIET


CASES: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([{"frozen": True}], {}, "Block 0 is frozen"),
    ([{"frozen": True}, {"frozen": True}], {}, "Blocks 0, 1 are frozen"),
    ([{}, {"dead": 1.0}], {}, "All units of block 1 (Linear) are dead: the ReLU above"),
    ([{}, {"dead": 0.51}], {}, "51% of the units of block 1 (Linear) are dead"),
    ([{"cosine": 0.5}, {"cosine": 0.89}], {}, "The gradient of 2 of 3 blocks has a cosine to backprop's below 0.9"),
    ([{"cosine": 0.5}], {}, "(least 0.50, in block 0), since codes moved far; try a lower share"),
    ([{"cosine": 0.5}], {}, 'try a lower share than 0.1 or order="weights-first" or a larger penalty.'),
    ([{"cosine": 0.5}], {"order": "weights-first"}, "try a lower share than 0.1 or a larger penalty."),
    (
        [{"cosine": 0.5}],
        {"share": None, "step": 0.5, "order": None},
        "; try a shorter step of the codes than 0.5 or a larger",
    ),
    ([{"cosine": 0.5}], {"truncated": True}, 'looks back one step; codes="exact"'),
    ([{"cosine": 0.5}], {"estimated": True}, "far from the straight-through estimate (cosine 0.50 in block 0)"),
    ([{"backprop": 1e-4}], {}, "Gradients vanish with depth: those of block 0 are 1e+04 times smaller"),
    ([], {"share": 0.0}, "With share=0 codes stay where they are and the gradients are backprop's"),
    ([{"movement": 1e-9}, {"movement": 0.0}], {}, "The codes of 2 of 2 hidden blocks move by no more than their own"),
    ([{"movement": 0.0}], {"share": 0.0}, "With share=0 codes stay where they are"),
    ([{"change": 0.11}, {"change": 0.3}], {}, "changes the weights of block 1 by 30%; lower the learning rate"),
    ([{"change": 0.11}], {"method": "am-mem-fitted"}, "raise the damping of its memory"),
    ([{"change": 0.0}] * 3, {}, "One step hardly changes any weight; raise the learning rate."),
    ([], {"input_mean": 33.0, "input_std": 78.0}, "The inputs have mean 33 and standard deviation 78; standardise"),
    ([], {"input_mean": -2.1}, "The inputs have mean -2.1"),
    ([], {"input_std": 0.001}, "The inputs have mean 0 and standard deviation 0.001"),
    ([], {"widest": 101.0}, "One feature varies 101 times as much as most others"),
    ([], {"target_std": 1000.0}, "The targets have standard deviation 1e+03"),
    ([], {"loss": 3.4}, "The loss 3.4 is far above log(3) = 1.10"),
    ([], {"idle": ("Dropout",)}, "The model is in eval mode, so Dropout acts as in a test; call model.train()"),
    ([], {"smallest_group": 2}, "Batch norm takes means over 2 values only"),
    (
        [{"through_autograd": ("Softmax",)}],
        {},
        "Block 0 is differentiated by autograd, by graphs that end with the block",
    ),
    ([{"through_autograd": ("Linear",), "avoidable": ("Linear (a hook)",)}], {}, "for the sake of Linear (a hook)"),
    ([{"time": Milliseconds(5.0, 5.0, 10.0)}], {}, "Block 0 (Linear) takes 74% of a step's time"),
]


@pytest.mark.parametrize("changes, about, words", CASES)
def test_what_stands_out_is_said_and_nothing_else(changes: list[Any], about: dict[str, Any], words: str) -> None:
    (sentence,) = said(*changes, **about)
    assert words in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    "changes, about",
    [
        ([{"dead": 0.5}], {}),
        ([{"cosine": 0.9}, {"cosine": None}], {}),
        ([{"backprop": 0.0}], {}),
        ([{"backprop": 2e-4, "parameters": 1}], {}),  # for each weight not so small
        ([{"movement": 0.0, "backprop": 0.0}], {}),
        ([{"change": 0.1}, {"change": 0.0}], {}),
        ([], {"input_mean": 2.0, "input_std": 9.0}),
        ([], {"input_mean": None, "input_std": None, "widest": None}),
        ([], {"loss": 3 * math.log(3)}),
        ([], {"loss": 100.0, "classes": None}),
        ([], {"smallest_group": 8}),
    ],
)
def test_what_is_still_well_is_not_complained_about(changes: list[Any], about: dict[str, Any]) -> None:
    assert said(*changes, **about) == QUIET


def test_every_rule_is_heard_in_some_case() -> None:
    for rule in RULES[1:]:  # the first is about a net of one block
        rows = [[row(l, **each) for l, each in enumerate([*c, *[{}] * (3 - len(c))])] for c, _, _ in CASES]
        assert any(list(rule(blocks, facts(**about))) for blocks, (_, about, _) in zip(rows, CASES, strict=True))


def test_a_net_of_one_block_is_told_to_be_backprop() -> None:
    (sentence,) = explained(nn.Sequential(nn.Linear(5, 3))).advice
    assert sentence.startswith("The network is one block, so it has no codes, and this step is backprop")


def test_a_dead_layer_is_named_in_a_real_net() -> None:
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100)
    assert any(text.startswith("All units of block 0 (Linear) are dead") for text in explained(model).advice)


def test_raw_pixels_and_a_large_rate_are_noticed_in_a_real_net() -> None:
    x, y = batch()
    advice = altmin.explain(net(), 255 * x.sigmoid(), y, lr=1.0).advice
    assert any("standardise them" in text for text in advice)
    assert any("lower the learning rate" in text for text in advice)
