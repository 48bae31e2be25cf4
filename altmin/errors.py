"""Errors that several modules raise. A message names what was given, what was expected, and the remedy."""

import difflib
from collections.abc import Iterable


class Diverged(RuntimeError):
    """A loss, a code or a parameter is not finite. The parameters are those from before the step that failed."""

    def __init__(self, where: str, remedy: str = "lower the learning rate or raise the penalty"):
        super().__init__(f"training diverged: {where} is not finite; {remedy}")
        self.where = where


def unknown(kind: str, name: str, choices: Iterable[str]) -> ValueError:
    """The ValueError for a name that is not among `choices`; its message suggests the most similar one.

    >>> print(unknown("method", "am-adm", ["adam", "am-adam"]))
    unknown method 'am-adm'; did you mean 'am-adam'? The choices are: adam, am-adam
    """
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} The choices are: {', '.join(choices)}")
