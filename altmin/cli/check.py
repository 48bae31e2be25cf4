"""A value of a command line or of a file against the type that is declared for it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from altmin.common.errors import unknown

WORDS: dict[Any, tuple[str, str]] = {
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    bool: ("true or false", "truth values"),
    str: ("a word", "words"),
    Path: ("a word", "words"),
    NoneType: ("none", "none"),
}
"""The types that have values outside Python: what one is called, and the entries of a list."""
NOTHING = object()


def checked(name: str, of: str, hint: Any, value: Any, none: bool = True) -> Any:
    """The value of option `name` of `of` as the type `hint` has it: an integer is a number, a truth value is not, and
    nothing is read into a text. ValueError in one sentence if it does not fit.

    none: whether that sentence may offer none, for which TOML has no word.

    >>> checked("lr", "method 'adam'", float | None, 1)
    1.0
    >>> checked("lr", "method 'adam'", float | None, True)
    Traceback (most recent call last):
    ValueError: option lr of method 'adam' takes a number or none, not True
    """
    kinds = list(_kinds(hint))
    for kind in kinds:
        if (found := _as(kind, value)) is not NOTHING:
            return found
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if isinstance(value, str) and any(isinstance(choice, str) for choice in choices):
        raise unknown(f"{name} of {of},", value, [choice for choice in choices if isinstance(choice, str)])
    words = [_words(kind, value) for kind in kinds if none or kind is not NoneType]
    expected = " or ".join(dict.fromkeys(filter(None, words)))
    raise ValueError(f"option {name} of {of} takes {expected or 'no value from outside Python'}, not {value!r}")


def _kinds(hint: Any) -> Iterator[Any]:
    """The types of a union, none last; of any other type itself."""
    kinds = [each for kind in get_args(hint) for each in _kinds(kind)] if get_origin(hint) in (Union, UnionType) else []
    yield from sorted(kinds or [hint], key=lambda kind: kind is NoneType)


def _as(kind: Any, value: Any) -> Any:
    """The value as this type has it; NOTHING if it is none of the type."""
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        same = [choice for choice in get_args(kind) if type(choice) is type(value) and choice == value]
        return same[0] if same else NOTHING
    if _is_list(kind):
        entries = (
            [
                next((found for k in _kinds(_entry(kind)) if (found := _as(k, each)) is not NOTHING), NOTHING)
                for each in value
            ]
            if isinstance(value, list | tuple)
            else [NOTHING]
        )
        return NOTHING if NOTHING in entries else (tuple if get_origin(kind) is tuple else list)(entries)
    if kind is float:
        return float(value) if type(value) in (int, float) else NOTHING
    if kind is Path:
        return Path(value) if isinstance(value, str) else NOTHING
    return value if type(value) is kind else NOTHING


def _is_list(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Sequence)


def _entry(kind: Any) -> Any:
    return get_args(kind)[0]


def _words(kind: Any, value: Any) -> str:
    """What a type expects; empty for an object that only Python can give."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if not _is_list(kind):
        return WORDS.get(kind, ("", ""))[0]
    if not isinstance(value, list | tuple):
        return "a list"
    return f"a list of {' or '.join(WORDS[each][1] for each in _kinds(_entry(kind)) if each in WORDS)}"
