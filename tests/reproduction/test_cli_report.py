"""`python -m reproduction report`: the page of a folder of results, or one sentence that says why there is none."""

import re
from pathlib import Path

import pytest
from report_cases import folders

from reproduction.__main__ import run
from reproduction.commands.verify import verdicts
from reproduction.folders import FIGURES, RESULTS


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    figures, results = folders(tmp_path)
    monkeypatch.chdir(tmp_path)
    return ["--figures", str(figures), "--results", str(results)]


def shown(text: str) -> list[str]:
    """The verdicts of all claims, in their order."""
    return re.findall(r'<summary><span class="id">.*<span class="verdict [\w-]+">(.*?)</span>.*</summary>', text)


def test_the_page_has_the_claims_and_figures_of_its_folders(options: list[str], tmp_path: Path) -> None:
    assert run(["report", *options]) == 0
    text = (tmp_path / "report.html").read_text()
    assert [each["verdict"] for each in verdicts(tmp_path / "figures", tmp_path / "results")] == shown(text)
    assert shown(text) == ["not run", "reproduced", "refuted", "exceeded", "differs"]
    assert text.count('class="drawing"') == 2
    assert run(["report", *options, "--out", "other.html"]) == 0
    assert (tmp_path / "other.html").read_text() == text


def test_a_place_that_cannot_be_written_is_refused(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *options, "--out", str(tmp_path / "no/report.html")]) == 2
    assert run(["report", *options, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_folder_that_is_not_there_is_refused_and_nothing_written(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *options, "--results", "nowhere"]) == 2
    assert capsys.readouterr().err == (
        "reproduction: there is no folder nowhere of results; `python -m reproduction figure FIGURE` makes them\n"
    )
    assert run(["report", *options, "--figures", "nowhere"]) == 2
    assert "there are no figures in nowhere" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_damaged_result_is_named_and_an_earlier_page_left_alone(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("an earlier page")
    (tmp_path / "results/small.jsonl").write_text("{}\n")
    assert run(["report", *options]) == 2
    assert "line 1 of" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "an earlier page"


def test_before_the_first_result_all_figures_are_listed(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["report", *options, "--results", "empty"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert shown(text) == ["not run"] * 5
    assert all(
        f"not run: <code>python -m reproduction figure {name}</code>" in text for name in ("small", "later", "depth")
    )


def test_the_page_of_the_project_s_own_results_is_small_and_has_every_claim(tmp_path: Path) -> None:
    assert run(["report", "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_bytes()
    assert len(page) < 1_000_000
    assert shown(page.decode()) == [row["verdict"] for row in verdicts(FIGURES, RESULTS)]
