"""Words of a command line become the values that were meant, or an error that says what was expected."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from torch import nn

from altmin import methods
from altmin.cli import parse
from altmin.common.describe import plain
from altmin.methods import protocol


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method with options of every type."""
    monkeypatch.setattr(protocol, "_FACTORIES", dict(protocol._FACTORIES))

    @methods.register("made-up")
    def made_up(
        model: nn.Module,
        share: float | None = None,
        order: Literal["codes-first", "weights-first"] = "codes-first",
        word: str = "plain",
        steps: int = 1,
        fused: bool = False,
        lr: float | Sequence[float] = 0.1,
    ) -> Any: ...


@pytest.mark.parametrize(
    "pair, name, value",
    [
        ("share=0.3", "share", 0.3),
        ("share=0", "share", 0.0),
        ("share=none", "share", None),
        ("order=weights-first", "order", "weights-first"),
        ("word=codes-first", "word", "codes-first"),
        ("word='7'", "word", "7"),
        ("fused=True", "fused", True),
        ("lr=[0.1, 2]", "lr", [0.1, 2.0]),
    ],
)
def test_an_option_has_the_type_that_the_method_declares(made_up: None, pair: str, name: str, value: Any) -> None:
    found = parse.all_options([pair], ["made-up"])["made-up"]
    defaults = {"share": None, "order": "codes-first", "word": "plain", "steps": 1, "fused": False, "lr": 0.1}
    assert found == {**defaults, name: value}
    assert type(found[name]) is type(value)


@pytest.mark.parametrize(
    "pair, words",
    [
        ("share=much", "option share of method 'made-up' takes a number or none, not 'much'"),
        ("order=weight-first", "unknown order of method 'made-up', 'weight-first'; did you mean 'weights-first'?"),
        ("order=1", "option order of method 'made-up' takes 'codes-first' or 'weights-first', not 1"),
        ("word=7", "option word of method 'made-up' takes a word, not 7"),
        ("steps=1.5", "takes a whole number, not 1.5"),
        ("steps=true", "takes a whole number, not True"),
        ("share=true", "takes a number or none, not True"),
        ("fused=1", "takes true or false, not 1"),
        ("lr=[0.1, fast]", "takes a number or a list, not '[0.1, fast]'"),
        ("lr=[0.1, 'fast']", "takes a number or a list of numbers, not [0.1, 'fast']"),
        ("shares=1", "unknown option of method 'made-up', 'shares'; did you mean 'share'?"),
        ("share", "--set takes name=value, such as lr=0.001, not 'share'"),
        ("=1", "--set takes name=value"),
        ("share=", "--set takes name=value"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(made_up: None, pair: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse.all_options([pair], ["made-up"])
    assert words in str(caught.value)


def test_options_of_a_file_give_way_to_those_of_the_command_line(made_up: None) -> None:
    tables = {"made-up": {"share": 0.1, "steps": 2, "word": "file"}, "adam": {"lr": 1.0}}
    found = parse.all_options(["steps=3"], ["made-up"], {"share": 0.2}, tables)["made-up"]
    assert (found["share"], found["steps"], found["word"], found["lr"]) == (0.2, 3, "file", 0.1)


def test_an_option_of_one_method_overrides_one_of_all() -> None:
    pairs = ["lr=0.1", "am-adam.lr=0.2"]
    assert parse.given_options(pairs, ["am-adam", "adam"]) == {"am-adam": {"lr": 0.2}, "adam": {"lr": 0.1}}


def test_what_json_cannot_hold_is_described() -> None:
    given = {"lr": (0.1, 0.2), "loss": nn.MSELoss(), 3: None}
    assert plain(given) == {"lr": [0.1, 0.2], "loss": "MSELoss()", "3": None}
