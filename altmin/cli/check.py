"""A value of a command line or of a file against the type that is declared for it, by pydantic."""

import ast
import json
from contextlib import suppress
from types import ModuleType
from typing import Any

from altmin.common.errors import unknown

WORDS = {
    "float_type": ("a number", "numbers"),
    "int_type": ("a whole number", "whole numbers"),
    "bool_type": ("true or false", "truth values"),
    "string_type": ("a word", "words"),
    "list_type": ("a list", "lists"),
}
"""What pydantic expected, by the kind of its error: of a value, and of the entries of a list."""


def checked(name: str, of: str, hint: Any, value: Any, none: bool = True) -> Any:
    """The value of option `name` of `of` as the type `hint` has it: an integer is a number, a truth value is not, and
    nothing is read into a text. ValueError in one sentence if it does not fit; ImportError where pydantic is missing.

    none: whether that sentence may offer none, for which TOML has no word.

    >>> checked("lr", "method 'adam'", float | None, 1)
    1.0
    >>> checked("lr", "method 'adam'", float | None, True)
    Traceback (most recent call last):
    ValueError: option lr of method 'adam' takes a number or none, not True
    """
    pydantic = _pydantic()
    adapter = pydantic.TypeAdapter(hint, config={"strict": True, "arbitrary_types_allowed": True})
    try:
        return adapter.validate_json(_json(value))
    except pydantic.ValidationError as error:
        problems = error.errors()
    choices = [choice for each in problems for choice in _choices(each)]
    if choices and isinstance(value, str):
        raise unknown(f"{name} of {of},", value, choices)
    kinds = [words for each in problems if (words := _words(each))]
    with suppress(pydantic.ValidationError):
        adapter.validate_json("null")
        kinds += ["none"] * none
    expected = " or ".join(dict.fromkeys(kinds))
    raise ValueError(f"option {name} of {of} takes {expected or 'no value from outside Python'}, not {value!r}")


def _pydantic() -> ModuleType:
    try:
        import pydantic  # a quarter of a second, and not on every machine
    except ImportError:
        raise ImportError(
            "options of --set, of --methods and of a file are checked by pydantic, which is not installed; "
            "install it with pip install pydantic"
        ) from None
    return pydantic


def _json(value: Any) -> str:
    """As JSON, in which pydantic takes no text for a number; what JSON lacks, such as a date, is no type's value."""
    return json.dumps(value, default=lambda other: {"": str(other)})


def _choices(problem: Any) -> list[str]:
    """Those of a Literal, from the text in which pydantic lists them: "'a', 'b' or 'c'"."""
    if problem["type"] != "literal_error":
        return []
    listed = ast.literal_eval(f"[{problem['ctx']['expected'].replace(' or ', ', ')}]")
    return [choice for choice in listed if isinstance(choice, str)]


def _words(problem: Any) -> str:
    """What was expected; empty for an object that only Python can give."""
    if problem["type"] == "literal_error":
        return str(problem["ctx"]["expected"])
    one, several = WORDS.get(problem["type"], ("", ""))
    return f"a list of {several}" if one and any(isinstance(place, int) for place in problem["loc"]) else one
