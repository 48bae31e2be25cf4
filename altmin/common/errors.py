"""Errors that several modules raise. A message names what was given, what was expected, and the remedy."""

import difflib
import math
from collections.abc import Iterable
from numbers import Real
from typing import Any


class Diverged(RuntimeError):
    """A loss, a code or a parameter is not finite: the parameters are those from before the step that failed. Or the
    loss of a run exploded (`what`): the parameters are those that it led to."""

    def __init__(
        self, where: str, remedy: str = "lower the learning rate or raise the penalty", what: str = "is not finite"
    ):
        super().__init__(f"training diverged: {where} {what}; {remedy}")
        self.where, self.remedy, self.what = where, remedy, what


def shown(value: Any, most: int = 60) -> str:
    """Return what was given, for a message: its `repr` in one line, of at most so many characters.

    >>> import torch
    >>> shown("text"), shown(torch.eye(2)), shown("a long one", most=7)
    ("'text'", 'tensor([[1., 0.], [0., 1.]])', "'a long")
    """
    return " ".join(repr(value).split())[:most]


def demand(of: str, name: str, value: Any, low: float = 0.0, above: bool = False, whole: bool = False) -> None:
    """Raise TypeError unless an option is a number, ValueError unless it is finite and at least `low`, or `above` it.

    whole: whether it must be a whole number.

    >>> demand("LocalAdam", "lr", float("inf"))
    Traceback (most recent call last):
    ValueError: lr of LocalAdam must be a finite number of at least 0, given inf
    """
    limit = f" {'above' if above else 'of at least'} {low:g}" if low > -math.inf else ""
    wanted = f"{name} of {of} must be a {'whole' if whole else 'finite'} number{limit}, given {shown(value)}"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(wanted)
    if not math.isfinite(value) or value < low or (above and value == low) or (whole and value % 1):
        raise ValueError(wanted)


def unknown(kind: str, name: str, choices: Iterable[str]) -> ValueError:
    """The ValueError for a name that is not among `choices`; its message suggests the most similar one.

    >>> print(unknown("method", "am-adm", ["adam", "am-adam"]))
    unknown method 'am-adm'; did you mean 'am-adam'? The choices are: adam, am-adam
    """
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {shown(name)}{hint} The choices are: {', '.join(choices)}")


def demand_fraction(of: str, **numbers: float) -> None:
    """Raise ValueError for numbers that are not at least 0 and below 1."""
    for name, value in numbers.items():
        demand(of, name, value)
        if value >= 1:
            raise ValueError(f"{name} of {of} lies between 0 and 1, and is not 1, given {value!r}")
