"""What a user is told when something is wrong: what was given, what is expected, how to mend it."""

import difflib
from collections.abc import Iterable


class Diverged(RuntimeError):
    """Training left the finite numbers; the parameters are those from before the offending step."""

    def __init__(self, where: str, remedy: str = "lower the learning rate or raise the penalty"):
        super().__init__(f"training diverged: {where} is not finite; {remedy}")
        self.where = where


def unknown(kind: str, name: str, choices: Iterable[str]) -> ValueError:
    """The error for a name that is not registered, with the nearest one that is.

    >>> print(unknown("method", "am-adm", ["adam", "am-adam"]))
    unknown method 'am-adm'; did you mean 'am-adam'? The choices are: adam, am-adam
    """
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} The choices are: {', '.join(choices)}")
