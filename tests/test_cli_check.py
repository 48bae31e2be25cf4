"""A value has the type that is declared for it, or the error says in words what was expected."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from altmin.cli.parse import checked

Solver = Callable[[int], int] | Literal["exact", "fixed"] | float | None


@pytest.mark.parametrize(
    "hint, value, expected",
    [
        (float, 3, 3.0),
        (int | None, None, None),
        (bool, True, True),
        (str, "true", "true"),
        (Path | None, "a/b", Path("a/b")),
        (Sequence[str] | None, ["1", "3"], ["1", "3"]),
        (Solver, "exact", "exact"),
        (Solver, 1, 1.0),
        (float | list[float], [1, 0.5], [1.0, 0.5]),
        (Any, {"a": 1}, {"a": 1}),
    ],
)
def test_what_fits_has_the_declared_type(hint: Any, value: Any, expected: Any) -> None:
    found = checked("name", "here", hint, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "hint, value, words",
    [
        (float, "0.1", "option name of here takes a number, not '0.1'"),
        (int, 2.5, "takes a whole number, not 2.5"),
        (int, True, "takes a whole number, not True"),
        (bool, 1, "takes true or false, not 1"),
        (str, 7, "takes a word, not 7"),
        (Sequence[str] | None, ["1", 3], "takes a list of words or none, not ['1', 3]"),
        (float | list[float], "x", "takes a number or a list, not 'x'"),
        (Solver, True, "takes 'exact' or 'fixed' or a number or none, not True"),
        (Solver, "exat", "unknown name of here, 'exat'; did you mean 'exact'? The choices are: exact, fixed"),
        (Callable[[int], int] | None, 3, "takes none, not 3"),
        (Callable[[int], int], 3, "takes no value from outside Python, not 3"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(hint: Any, value: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked("name", "here", hint, value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
