"""Figures: what they declare, and pictures that show it."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure as Picture

from reproduction import Figure, Mark, Results, Row, Run, draw
from reproduction.__main__ import run
from reproduction.figure import load

DRAWN = [Run("adam", "mlp-1x4", seeds=2), Run("sgd", "mlp-1x4", label="plain"), Run("adam", "mlp-2x4")]


def row(run: Run, seed: int, accuracy: float, seconds: float = 1.0) -> Row:
    epochs = [{"epoch": 1, "test_accuracy": accuracy, "seconds": seconds}]
    return {"config": run.config(), "seed": seed, "rows": 200, "batches": [], "epochs": epochs}


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> list[Picture]:
    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    return drawn


def test_a_quick_figure_is_made_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["figure", "fig1", "--quick", "--only", "mlp-2x100/am-adam", "--out", str(tmp_path)]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "1 of 1: mnist, mlp-2x100, ours, am-adam, seed 0" in printed
    rows = Results.read(tmp_path / "fig1-quick.jsonl").rows
    assert {each["config"]["method"] for each in rows} == {"am-adam"}
    assert all(each["epochs"][-1]["test_accuracy"] > 0.8 for each in rows)
    assert (tmp_path / "fig1-quick.png").read_bytes().startswith(b"\x89PNG")
    assert "| mnist, mlp-2x100, ours | am-adam |" in printed
    before = (tmp_path / "fig1-quick.jsonl").read_text()
    assert run(arguments) == 0
    assert (tmp_path / "fig1-quick.jsonl").read_text() == before, "nothing is made again"


def test_every_figure_is_loaded_and_its_preview_is_smaller() -> None:
    figures = load()
    assert len(figures) >= 30
    for figure in figures.values():
        small = figure.smaller()
        assert 0 < sum(each.seeds for each in small.runs) <= sum(each.seeds for each in figure.runs)
        assert not small.claims


def test_runs_are_selected_by_their_words() -> None:
    figure = Figure("f", "t", DRAWN)
    assert [each.name for each in figure.only("mlp-1x4/plain,mlp-2x4").runs] == ["plain", "adam"]
    with pytest.raises(ValueError, match="mlp-3x4"):
        figure.only("mlp-3x4")


def test_a_panel_for_each_net_a_curve_for_each_run_and_marks(pictures: list[Picture]) -> None:
    results = Results([row(DRAWN[0], 0, 0.2), row(DRAWN[0], 1, 0.4), row(DRAWN[1], 0, 0.5), row(DRAWN[2], 0, 0.7)])
    figure = Figure("f", "the title", DRAWN, ["epochs"], 1, marks=[Mark("mnist, mlp-2x4", 1, 0.98, "AM-Adam 0.98")])
    draw.draw(figure, results, "png", "a note")
    left, right = pictures[0].axes
    assert [axes.get_title(loc="left") for axes in (left, right)] == ["mnist, mlp-1x4", "mnist, mlp-2x4"]
    curves = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert curves["adam"] == pytest.approx([0.3]), "the mean of the seeds"
    assert curves["plain"] == [0.5]
    assert [text.get_text() for text in right.texts] == ["★ paper: AM-Adam 0.98"]
    assert [list(line.get_ydata()) for line in right.lines] == [[0.7], [0.98]]
    assert [text.get_text() for text in pictures[0].legends[0].get_texts()] == ["adam", "plain"], "once for all panels"
    assert pictures[0].get_suptitle() == "the title\na note"


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("figure", ["fig99"]),
        ("search", ["theory"]),
        ("verify", ["--json", "nowhere/claims.json"]),
        ("report", ["--out", "nowhere/report.html"]),
        ("theory", ["--seed", "-1"]),
        ("speed", ["--modes", "eagre", "--model", "mlp-1x4"]),
        ("tables", ["--no-such-option"]),
    ],
)
def test_a_command_has_help_with_an_example_and_says_what_is_wrong_in_a_line(
    name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    assert f"python -m reproduction {name}" in capsys.readouterr().out.partition("Example")[2]
    assert run([name, *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
