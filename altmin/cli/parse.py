"""From the words of a command line to values, with an error that says what was expected."""

import ast
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from altmin.errors import unknown

Options = dict[str, Any]


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


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers from a comma-separated list."""
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise ValueError(f"{option} takes whole numbers, such as 25,50, not {text!r}") from None


def settings(pairs: Sequence[str], option: str = "--set") -> Options:
    """The options in `name=value` pairs; a value is a Python literal if it can be, else a string.

    >>> settings(["lr=0.1", "codes=exact", "nesterov=true"])
    {'lr': 0.1, 'codes': 'exact', 'nesterov': True}
    """
    found: Options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name.strip() and equals and text.strip()):
            raise ValueError(f"{option} takes name=value, such as lr=0.001, not {pair!r}")
        if name.strip() in found:
            raise ValueError(f"{option} gives {name.strip()} twice")
        found[name.strip()] = _value(text.strip())
    return found


def settings_by_method(pairs: Sequence[str], methods: Sequence[str]) -> dict[str, Options]:
    """The options of each method: `name=value` is for all of them, `method.name=value` for one."""
    given = settings(pairs)
    for name in given:
        method, dot, _ = name.partition(".")
        if dot and method not in methods:
            raise unknown("method in --set,", method, methods)
    shared = {name: value for name, value in given.items() if "." not in name}
    own = {
        method: {name[len(method) + 1 :]: v for name, v in given.items() if name.startswith(f"{method}.")}
        for method in methods
    }
    return {method: {**shared, **own[method]} for method in methods}


def code_solver(codes: str | None, sweep: str | None = None) -> str | None:
    """The name of a code solver that --codes gives, or --sweep for codes in time, if there is such a one."""
    from altmin.codes.choose import SOLVERS
    from altmin.codes.recurrent import SWEEPS

    if codes is not None and sweep is not None:
        raise ValueError(f"--codes {codes} and --sweep {sweep} both say how codes move; give one of them")
    if codes is not None and codes not in SOLVERS:
        raise unknown("code solver in --codes,", codes, SOLVERS)
    if sweep is not None and sweep not in SWEEPS:
        raise unknown("sweep", sweep, SWEEPS)
    return sweep or codes


def add_codes(given: Mapping[str, Options], name: str) -> None:
    """Sets the code solver of those among several methods that have codes."""
    from altmin import methods

    having = [method for method in given if "codes" in methods.options(method)]
    if not having:
        raise ValueError(f"--codes {name} says how codes move, but none of these methods has any: {', '.join(given)}")
    for method in having:
        if "codes" in given[method]:
            raise ValueError(f"--set and --codes both give codes of {method}; give one of them")
        given[method]["codes"] = name


def method_options(method: str, given: Mapping[str, Any]) -> Options:
    """All options of a method, those not given at their defaults; checked by name and by type."""
    import inspect

    from altmin import methods

    make = methods.factory(method)
    defaults = {p.name: p.default for p in inspect.signature(make).parameters.values() if p.name != "model"}
    hints = get_type_hints(make)
    for name, value in given.items():
        if name not in defaults:
            raise unknown(f"option of method {method!r},", name, defaults)
        if not _fits(value, hints.get(name, Any)):
            raise ValueError(f"option {name} of method {method!r} takes {_name(hints[name])}, not {value!r}")
    return {**defaults, **given}


def plain(value: Any) -> Any:
    """`value` as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _value(text: str) -> Any:
    words_for = {"true": True, "false": False, "none": None}
    if text.lower() in words_for:
        return words_for[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _fits(value: Any, hint: Any) -> bool:
    """Whether a literal may be passed where `hint` stands; an integer is a number too, a truth value is not."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is not None:
        return isinstance(value, (list, tuple, dict))
    if hint is Any:
        return True
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is hint


def _name(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_name(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    known = {float: "a number", int: "a whole number", bool: "true or false", str: "a word", type(None): "none"}
    return known.get(hint, getattr(hint, "__name__", str(hint)))
