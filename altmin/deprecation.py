"""Names and arguments on their way out: a warning says since when, until when, and what to use instead."""

import functools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Named = TypeVar("Named", bound=Callable[..., Any])


def release(version: str) -> tuple[int, int, int]:
    """The three numbers of a version; what follows them, as in "0.3.0.dev0", is left out. ValueError without three.

    >>> release("0.3.0.dev0") < release("0.10.1")
    True
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise ValueError(f"a version has three numbers, such as '0.3.0', given {version!r}")
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


@dataclass(frozen=True)
class Deprecation:
    """Something that still works, will be removed, and has a successor.

    since: the version that warns first. removed_in: the first version without it, a later minor version; from 1.0 on a
    later major version. ValueError for another. use: what to write instead.

    >>> Deprecation("fit(metric=)", since="0.3.0", removed_in="0.4.0", use="fit(metrics=)").message
    'fit(metric=) is deprecated since altmin 0.3.0 and will be removed in 0.4.0; use fit(metrics=).'
    """

    name: str
    since: str
    removed_in: str
    use: str

    def __post_init__(self) -> None:
        since, end = release(self.since), release(self.removed_in)
        late_enough = end[0] > since[0] or (since[0] == 0 == end[0] and end[1] > since[1])
        if not late_enough or end[2] != 0 or (end[0] > 0 and end[1] != 0):
            raise ValueError(
                f"{self.name}, deprecated since {self.since}, is removed in a later "
                f"{'major' if since[0] else 'minor'} version, given {self.removed_in}"
            )

    @property
    def message(self) -> str:
        return (
            f"{self.name} is deprecated since altmin {self.since} and will be removed in {self.removed_in}; "
            f"use {self.use}."
        )

    def warn(self) -> None:
        """A DeprecationWarning at the line that called the function which calls this."""
        warnings.warn(self.message, DeprecationWarning, stacklevel=3)


ANNOUNCED: list[Deprecation] = []
"""All that this version has deprecated, as far as its modules are imported."""


def announce(name: str, *, since: str, removed_in: str, use: str) -> Deprecation:
    """A deprecation of an argument or a value, whose `warn` is called where it is met."""
    ANNOUNCED.append(Deprecation(name, since, removed_in, use))
    return ANNOUNCED[-1]


def deprecated(*, since: str, removed_in: str, use: str) -> Callable[[Named], Named]:
    """A decorator of a function or a class that works as before and warns whenever it is called."""

    def mark(named: Named) -> Named:
        found = announce(f"{named.__module__}.{named.__qualname__}", since=since, removed_in=removed_in, use=use)
        inner = named.__init__ if isinstance(named, type) else named  # type: ignore[misc]

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            found.warn()
            return inner(*args, **kwargs)

        if isinstance(named, type):
            named.__init__ = call  # type: ignore[misc]
            return named
        return call  # type: ignore[return-value]

    return mark
