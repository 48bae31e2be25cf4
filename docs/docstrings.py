"""A griffe extension: docstrings as Markdown.

The docstrings of the package are plain text with equations, lists of arguments and doctests. Markdown would take the
`>>>` of a doctest for a quotation and an inner product <u, v> for a tag.
"""

import re
from typing import Any

from griffe import Extension, Object

INDENTED = "    "


def as_markdown(text: str) -> str:
    """Doctests become fenced code, and a `<` outside of code is a `<`.

    >>> as_markdown("an inner product <u, v>, as in `<b>`")
    'an inner product &lt;u, v>, as in `<b>`'
    """
    lines: list[str] = []
    doctest = False
    for line in text.splitlines():
        if line.startswith(">>>") and not doctest:
            lines.append("```pycon")
            doctest = True
        elif doctest and not line.strip():
            lines.append("```")
            doctest = False
        lines.append(line if doctest or line.startswith(INDENTED) else _escaped(line))
    return "\n".join([*lines, "```"] if doctest else lines)


def _escaped(line: str) -> str:
    """A line of prose, with `<` written out where it is not in `code`."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def with_names(text: str, names: set[str]) -> str:
    """Sentences such as "lr, eps: what they mean", which say what arguments are, with the arguments' names as code.

    >>> with_names("Moves it.\\n\\nlr: how far. a, b: two more. so: not one.", {"lr", "a", "b"})
    'Moves it.\\n\\n`lr`: how far. `a`, `b`: two more. so: not one.'
    """

    def marked(found: re.Match[str]) -> str:
        given = set(re.findall(r"\w+", found[2]))
        return found[1] + re.sub(r"\w+", r"`\g<0>`", found[2]) + ": " if given <= names else found[0]

    return re.sub(r"(^|\. |\.\n)((?:\w+,\s)*\w+): ", marked, text, flags=re.MULTILINE)


def names_of(obj: Object) -> set[str]:
    """What a docstring may explain: the arguments of a function; of a class, those of its making and its attributes."""
    if obj.is_class:
        return {name for name, member in obj.members.items() if not member.is_alias} | {
            parameter.name for parameter in obj.parameters
        }
    return {parameter.name for parameter in obj.parameters} if obj.is_function else set()


class Docstrings(Extension):
    """Every docstring of the package, once it is loaded."""

    def on_package(self, *, pkg: Object, **_: Any) -> None:
        self._visit(pkg)

    def _visit(self, obj: Object) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(with_names(obj.docstring.value, names_of(obj)))
        for member in obj.members.values():
            if not member.is_alias:
                self._visit(member)
