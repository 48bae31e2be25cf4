"""Parses the words of a command line, with errors that say what was expected."""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from altmin import methods as registry
from altmin.common.errors import unknown

Options = dict[str, Any]
Number = TypeVar("Number", int, float)
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


def words(text: str) -> list[str]:
    """The parts of a comma-separated list, each once.

    >>> words("am-adam, adam,am-adam")
    ['am-adam', 'adam']
    """
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def names(option: str, text: str) -> list[str]:
    """At least one name from a comma-separated list."""
    if not words(text):
        raise ValueError(f"{option} names nothing; give one name, or several separated by commas")
    return words(text)


def numbers(option: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """The numbers in a comma-separated list, each an `int` or a `float`."""
    try:
        return [kind(word) for word in words(text)]
    except ValueError:
        expected = "whole numbers, such as 25,50" if kind is int else "numbers, such as 0.5,0.9"
        raise ValueError(f"{option} takes {expected}, not {text!r}") from None


def counts(option: str, text: str) -> list[int]:
    """At least one whole number, all from 1."""
    found = numbers(option, text, int)
    if not found or min(found) < 1:
        raise ValueError(f"{option} takes whole numbers from 1, such as 1,8,64, not {text!r}")
    return found


def settings(pairs: Sequence[str], option: str = "--set") -> Options:
    """The options in `name=value` pairs; a value is a Python literal if it can be, else a string.

    >>> settings(["lr=0.1", "order=weights-first", "nesterov=true"])
    {'lr': 0.1, 'order': 'weights-first', 'nesterov': True}
    """
    found: Options = {}
    for pair in pairs:
        name, _, text = (part.strip() for part in pair.partition("="))
        if not (name and text):
            raise ValueError(f"{option} takes name=value, such as lr=0.001, not {pair!r}")
        if name in found:
            raise ValueError(f"{option} gives {name} twice")
        found[name] = _value(text)
    return found


def given_options(pairs: Sequence[str], methods: Sequence[str]) -> dict[str, Options]:
    """The options given for each method: `name=value` is for all of them, `method.name=value` for one.

    >>> given_options(["lr=0.1", "adam.lr=0.2"], ["adam", "sgd"])
    {'adam': {'lr': 0.2}, 'sgd': {'lr': 0.1}}
    """
    shared, own = {}, {method: {} for method in methods}  # type: tuple[Options, dict[str, Options]]
    for name, value in settings(pairs).items():
        method, dot, option = name.rpartition(".")
        if dot and method not in methods:
            raise unknown("method in --set,", method, methods)
        (own[method] if dot else shared)[option] = value
    return {method: {**shared, **own[method]} for method in methods}


def flags(given: Any) -> Options:
    """What `--codes`, `--order`, `--share`, `--at` and `--lr` give, by the names that options of methods have."""
    found = {name: getattr(given, name, None) for name in ("codes", "order", "share", "at", "lr")}
    found["at"] = None if found["at"] is None else names("--at", found["at"])
    return {name: value for name, value in found.items() if value is not None}


def all_options(
    pairs: Sequence[str],
    methods: Sequence[str],
    flags: Mapping[str, Any] | None = None,
    tables: Mapping[str, Options] | None = None,
) -> dict[str, Options]:
    """Every option of each method: those of `pairs`, checked, `flags` for the methods that have such options, then
    those of a file, checked before, and defaults."""
    given, typed = given_options(pairs, methods), {method: dict((tables or {}).get(method, {})) for method in methods}
    for name, value in (flags or {}).items():
        having = [method for method in methods if name in registry.options(method)]
        if not having:
            which, text = ", ".join(methods), ",".join(value) if isinstance(value, list) else value
            about = "a learning rate" if name == "lr" else "about codes"
            raise ValueError(f"--{name} {text} is {about}, but none of these methods has any: {which}")
        for method in having:
            if name in given[method]:
                raise ValueError(f"--set and --{name} both give {name} of {method}; give one of them")
            typed[method][name] = value
    return {method: method_options(method, given[method], typed[method]) for method in methods}


def method_options(method: str, given: Mapping[str, Any], typed: Mapping[str, Any] | None = None) -> Options:
    """Every option of a method: those given, checked, then those that have their types already, then defaults.

    Raises ValueError for a wrong name or type, and for an option without a default that is not given."""
    parameters = inspect.signature(registry.factory(method)).parameters
    defaults = {name: parameters[name].default for name in registry.options(method)}
    found = {**defaults, **(typed or {}), **check_options(method, given)}
    for name, value in found.items():
        if value is inspect.Parameter.empty:
            raise ValueError(f"method {method!r} needs its option {name}; give it by --set {name}=VALUE")
    return found


def check_options(method: str, given: Mapping[str, Any], where: str = "") -> Options:
    """The options given as the types that the method declares have them. Raises ValueError for a wrong name or type.

    where: what else its message names, such as " in run.toml"."""
    hints, of = get_type_hints(registry.factory(method)), f"method {method!r}{where}"
    for name in given:
        if name not in registry.options(method):
            raise unknown(f"option of {of},", name, registry.options(method))
    return {name: checked(name, of, hints.get(name, Any), value) for name, value in given.items()}


def _value(text: str) -> Any:
    constants = {"true": "True", "false": "False", "none": "None"}
    try:
        return ast.literal_eval(constants.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text


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
    if (found := _converted(hint, value)) is not NOTHING:
        return found
    kinds = _kinds(hint)
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if isinstance(value, str) and any(isinstance(choice, str) for choice in choices):
        raise unknown(f"{name} of {of},", value, [choice for choice in choices if isinstance(choice, str)])
    words = [_words(kind, value) for kind in kinds if none or kind is not NoneType]
    expected = " or ".join(dict.fromkeys(filter(None, words)))
    raise ValueError(f"option {name} of {of} takes {expected or 'no value from outside Python'}, not {value!r}")


def _kinds(hint: Any) -> list[Any]:
    """The types of a union, none last; of any other type itself."""
    kinds = [each for kind in get_args(hint) for each in _kinds(kind)] if get_origin(hint) in (Union, UnionType) else []
    return sorted(kinds or [hint], key=lambda kind: kind is NoneType)


def _converted(hint: Any, value: Any) -> Any:
    """The value as the first type of a union that can has it; NOTHING if none can."""
    return next((found for kind in _kinds(hint) if (found := _as(kind, value)) is not NOTHING), NOTHING)


def _as(kind: Any, value: Any) -> Any:
    """The value as this type has it; NOTHING if it is none of the type."""
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        same = [choice for choice in get_args(kind) if type(choice) is type(value) and choice == value]
        return same[0] if same else NOTHING
    if _is_list(kind):
        given = value if isinstance(value, list | tuple) else [NOTHING]
        entries = [_converted(get_args(kind)[0], each) for each in given]
        return NOTHING if NOTHING in entries else (tuple if get_origin(kind) is tuple else list)(entries)
    if kind is float:
        return float(value) if type(value) in (int, float) else NOTHING
    if kind is Path:
        return Path(value) if isinstance(value, str) else NOTHING
    return value if type(value) is kind else NOTHING


def _is_list(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Sequence)


def _words(kind: Any, value: Any) -> str:
    """What a type expects; empty for an object that only Python can give."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if not _is_list(kind):
        return WORDS.get(kind, ("", ""))[0]
    if not isinstance(value, list | tuple):
        return "a list"
    return f"a list of {' or '.join(WORDS[each][1] for each in _kinds(get_args(kind)[0]) if each in WORDS)}"
