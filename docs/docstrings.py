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

    >>> print(as_markdown("<u, v>, as in `<b>`:\\n\\n>>> 1 + 1\\n2"))
    &lt;u, v>, as in `<b>`:
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
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
    """A line of prose: `<` is written out where it is not in `code`, and `*` stays what it is."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


class Docstrings(Extension):
    """Every docstring of the package, as it is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
