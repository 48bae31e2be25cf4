"""The help of an option names every choice that the library has."""

from typing import Any, get_args

import pytest

from altmin import data
from altmin.cli import options
from altmin.core.trainer import Codes
from altmin.runners import precision
from altmin.training import SCHEDULES


def words(option: Any) -> set[str]:
    """The words of an option's help."""
    (about,) = option.__metadata__
    return {word.strip(".,;:()") for word in about.help.split()}


CODES = {name for kind in get_args(Codes) for name in get_args(kind) if isinstance(name, str)}


@pytest.mark.parametrize(
    "option, choices",
    [
        (options.Codes, CODES),
        (options.Data, set(data.names())),
        (options.Schedule, set(SCHEDULES)),
        (options.Precision, set(precision.NAMES)),
    ],
)
def test_the_help_names_every_choice(option: Any, choices: set[str]) -> None:
    assert len(choices) > 2, "nothing to compare with"
    assert choices <= words(option)
