"""Rules for the files of the repository: every source file has its test file, and none has over 400 lines."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 400

# An `__init__.py` only gathers names, and `__main__.py` only starts the command line.
WITHOUT_TESTS = {"__init__", "__main__"}

SOURCES = sorted(path.relative_to(ROOT / "altmin").with_suffix("") for path in ROOT.glob("altmin/**/*.py"))
PYTHON = sorted(path for folder in ("altmin", "experiments", "tests") for path in ROOT.glob(f"{folder}/**/*.py"))


@pytest.mark.parametrize("source", [path for path in SOURCES if path.name not in WITHOUT_TESTS], ids=str)
def test_every_source_file_has_its_test_file_by_name(source: Path) -> None:
    """`data/idx` is tested by tests/test_data_idx.py."""
    expected = f"tests/test_{'_'.join(source.parts)}.py"
    assert (ROOT / expected).is_file(), f"altmin/{source}.py needs {expected}"


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_python_file_has_more_than_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST
