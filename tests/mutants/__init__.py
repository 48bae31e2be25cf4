"""One-line defects of the package, each of which the tests must notice; `make mutants` injects them one by one.

A file of this folder lists the mutants of one subject. `altmin` is their common root: `codes/gradient.py` is
altmin/codes/gradient.py.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
NOT_LISTS = ("__main__", "runner")


class Mutant(NamedTuple):
    """In `file`, replace `old`, which occurs there once, by `new`: then the `tests` must fail."""

    file: str
    old: str
    new: str
    tests: str
    """The name of a test file without `test_`; after a space, words for pytest's -k, any of which selects a test."""

    def test_file(self) -> str:
        return f"tests/test_{self.tests.partition(' ')[0]}.py"

    def words(self) -> str:
        return self.tests.partition(" ")[2].replace(" ", " or ")

    def occurrences(self, root: Path = ROOT) -> int:
        """How often `old` stands in the file; 0 where there is no such file."""
        file = root / "altmin" / self.file
        return file.read_text().count(self.old) if file.is_file() else 0


def subjects() -> dict[str, list[Mutant]]:
    """Every list of mutants, by the name of its file."""
    names = [module.name for module in iter_modules([str(Path(__file__).parent)]) if module.name not in NOT_LISTS]
    return {name: import_module(f".{name}", __name__).MUTANTS for name in sorted(names)}
