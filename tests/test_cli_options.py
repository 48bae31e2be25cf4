"""The help of an option names every choice that the library has."""

from dataclasses import fields
from typing import get_args

import pytest

from altmin import data
from altmin.cli import options
from altmin.core.trainer import Codes
from altmin.runners import precision
from altmin.training import SCHEDULES


def words(option: str) -> set[str]:
    """The words of an option's help."""
    (found,) = (each for each in fields(options.OfRuns) if each.name == option)
    return {word.strip(".,;:()") for word in found.metadata["option"].help.split()}


CODES = {name for kind in get_args(Codes) for name in get_args(kind) if isinstance(name, str)}


@pytest.mark.parametrize(
    "option, choices",
    [
        ("codes", CODES),
        ("data", set(data.names())),
        ("schedule", set(SCHEDULES)),
        ("precision", set(precision.NAMES)),
    ],
)
def test_the_help_names_every_choice(option: str, choices: set[str]) -> None:
    assert len(choices) > 2, "nothing to compare with"
    assert choices <= words(option)
