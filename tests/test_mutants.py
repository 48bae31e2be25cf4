"""The lists of mutants fit the source; a run tells caught from survived, and stops where tests fail anyway."""

from pathlib import Path

import pytest
from mutants import ROOT, Mutant, runner, subjects

EVERY = [
    pytest.param(mutant, id=f"{subject}-{mutant.file}-{i}")
    for subject, mutants in subjects().items()
    for i, mutant in enumerate(mutants)
]


@pytest.mark.parametrize("mutant", EVERY)
def test_the_text_of_a_mutant_occurs_once_in_its_file_and_its_tests_exist(mutant: Mutant) -> None:
    assert mutant.occurrences() == 1, f"{mutant.old!r} in altmin/{mutant.file}"
    assert mutant.new != mutant.old
    assert (ROOT / mutant.test_file()).is_file()


def test_no_mutant_is_listed_twice() -> None:
    every = [(m.file, m.old, m.new) for mutants in subjects().values() for m in mutants]
    assert len(set(every)) == len(every)


# The runner, on a package of one function


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files of a small package with its tests, in place of this repository's; a test may change them."""
    files = {
        "altmin/__init__.py": "",
        "altmin/sums.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sums.py": "from altmin.sums import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n",
    }

    def write(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    mutants = [
        Mutant("sums.py", "a + b", "2 * a + b", "sums"),
        Mutant("sums.py", "a + b", "a - b", "sums zero"),
        Mutant("sums.py", "a", "b", "sums"),
    ]
    monkeypatch.setattr(runner, "copy_to", write)
    monkeypatch.setattr(runner, "subjects", lambda: {"sums": mutants})
    return files


def test_a_mutant_is_caught_or_survives_or_is_ambiguous(
    small: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main("sums") == 1
    first, second, third, last = capsys.readouterr().out.splitlines()
    assert first.startswith("caught")
    assert second.startswith("SURVIVED")
    assert third.startswith("its text occurs 3 times, not once")
    assert last == "1 of 3 mutants caught"
    assert runner.main("2 * a") == 0
    assert runner.main("no such text") == 1


def test_tests_that_fail_without_a_defect_stop_the_run(
    small: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    small["tests/test_sums.py"] += "\n\ndef test_wrong():\n    assert add(1, 1) == 3\n"
    assert runner.main() == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "No mutant was tried: the tests fail without any defect." in said.err
    assert "tests/test_sums.py::test_wrong" in said.err
    assert "test_zero" not in said.err


def test_tests_that_cannot_start_stop_the_run(small: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    small["tests/test_sums.py"] = "import nothing_of_this_name\n"
    assert runner.main() == 1
    assert "tests/test_sums.py" in capsys.readouterr().err
