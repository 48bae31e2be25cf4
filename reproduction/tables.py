"""Tables of the documents, filled from results by `python -m reproduction tables`. Nothing is trained.

A document says where a table stands: between `<!-- table: NAME -->` and `<!-- end -->`, each on a line of its own.
"""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = re.compile(r"(?<=<!-- table: )(\S+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
MODULES = (
    *("paper", "summary"),
    *(f"measurements.{path.stem}" for path in sorted((ROOT / "reproduction/measurements").glob("[!_]*.py"))),
)
"""Where tables are registered, in reproduction/."""

Table = Callable[[], str]
_TABLES: dict[str, Table] = {}


def table(name: str) -> Callable[[Table], Table]:
    """Registers a function that returns Markdown, a table or any other text, under the name used in documents."""

    def register(function: Table) -> Table:
        _TABLES[name] = function
        return function

    return register


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table.

    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def tables() -> dict[str, Table]:
    """All tables by name."""
    for module in MODULES:
        import_module(f"reproduction.{module}")
    return _TABLES


def documents() -> list[Path]:
    """All that may have tables."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("reproduction/**/*.md")])


def shown(text: str) -> list[str]:
    """The names of the tables of a document."""
    return [found[1] for found in PLACE.finditer(text)]


def stale() -> list[tuple[Path, str]]:
    """The documents whose tables differ from the results, each with its text as it should be."""
    return [(path, text) for path in documents() if (text := filled(path.read_text())) != path.read_text()]


def filled(text: str) -> str:
    """A document with its tables as the results have them. ValueError if one has an unknown name."""
    known = tables()
    if unknown := [name for name in shown(text) if name not in known]:
        raise ValueError(f"there is no table {unknown[0]!r}; the tables are {', '.join(sorted(known))}")
    return PLACE.sub(lambda found: f"{found[1]}{found[2]}{known[found[1]]().strip()}\n", text)
