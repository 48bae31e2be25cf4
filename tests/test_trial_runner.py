"""The trial's runner: parts by name, a file of results, an exit code, and a table for the document."""

import json
import sys
import types
from pathlib import Path

import pytest
from trial import runner


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts, of which the second fails."""

    def good(count: int, seed: int, failures: list[str]) -> dict[str, int]:
        return {"cases": count, "seed": seed}

    def bad(count: int, seed: int, failures: list[str]) -> dict[str, int]:
        failures.append("bad --seed 0: it went wrong")
        return {}

    for name, trial in (("api", good), ("threads", bad)):
        module = types.ModuleType(f"trial.{name}")
        module.trial = trial  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"trial.{name}", module)
    monkeypatch.setattr(runner, "present", lambda: ["api", "threads"])


def test_parts_run_by_name_and_failures_are_told_and_counted(
    parts: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trial.json"
    assert runner.main(["api", "--counts", "short", "--seed", "3"]) == 0
    assert runner.main(["--json", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "bad --seed 0: it went wrong" in shown
    result = json.loads(file.read_text())
    assert [(row["part"], row["cases"], len(row["failures"])) for row in result["parts"]] == [
        ("api", 10_000, 0),
        ("threads", 10, 1),
    ]
    assert result["seed"] == 0
    assert result["environment"]["torch"]


def test_a_number_of_cases_may_be_given(parts: None) -> None:
    assert [runner.count_of("api", counts) for counts in ("full", "short", "1")] == [10_000, 300, 1]
    for wrong in (["nothing"], ["api", "--counts", "0"], ["api", "--counts", "some"]):
        with pytest.raises(SystemExit, match="2"):
            runner.main(wrong)


def test_the_table_goes_between_the_markers_and_nowhere_else(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{runner.BEGIN}old\n{runner.END}after\n")
    row = {"part": "api", "cases": 10, "counters": {"calls": 1234}, "failures": ["one"], "seconds": 2.6}
    where = {"platform": "Linux", "torch": "2", "python": "3"}
    runner.fill({"seed": 0, "counts": "full", "environment": where, "parts": [row]}, document)
    text = document.read_text()
    assert text.startswith(f"before\n{runner.BEGIN}| part |")
    assert text.endswith(f"{runner.END}after\n")
    assert "| 10 | 1,234 calls | 1 | 3 |" in text
    assert "old" not in text
    document.write_text("no markers")
    with pytest.raises(ValueError, match="trial:begin"):
        runner.fill({"seed": 0, "counts": "full", "environment": where, "parts": [row]}, document)


def test_the_parts_that_are_there_are_found() -> None:
    assert {"api", "commands", "threads"} <= set(runner.present())
    assert set(runner.present()) <= set(runner.COUNTS) == set(runner.WHAT)
