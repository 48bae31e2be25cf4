"""`python -m reproduction search`: lists searches, makes one, says what it found, and can be stopped."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from searches import Trained

from altmin import data, methods, models
from altmin.runners import compatible
from reproduction.__main__ import run
from reproduction.figure import load
from reproduction.folders import FIGURES
from reproduction.learning import Learner
from reproduction.run import Run

DECLARED = """
from reproduction import Between, Figure, Run, Search
ADAM, SGD = Run("adam", "mlp-1x4"), Run("sgd", "mlp-1x8", data="fashion-mnist")
SEARCHES = [Search(ADAM, {"lr": [0.125, 0.5, 0.25]}, seeds=2, paper={"lr": 0.0625}),
            Search(SGD, {"lr": Between(0.1, 0.2)}, trials=12, together=2)]
FIGURES = [Figure("small", "a small figure", [ADAM], ["epochs"], 1, searches=SEARCHES)]
"""


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/small.py").write_text(DECLARED)
    fixed = DECLARED.replace("small", "fixed").replace(", searches=SEARCHES", "")
    (tmp_path / "figures/fixed.py").write_text(fixed)
    return ["--figures", str(tmp_path / "figures"), "--results", str(tmp_path / "results")]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    return Trained(lambda options, seed: options["lr"] + seed / 4, monkeypatch)


def rows(tmp_path: Path) -> list[Any]:
    return [json.loads(line) for line in (tmp_path / "results/search/small.jsonl").read_text().splitlines()]


def test_without_a_name_the_figures_with_searches_are_listed(
    folders: list[str], trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    def cells() -> list[str]:
        assert run(["search", *folders]) == 0
        shown = capsys.readouterr().out
        assert "fixed" not in shown
        return next(line for line in shown.splitlines() if "small" in line).split("│")[3:6]

    assert [int(cell) for cell in cells()] == [2, 15, 0]
    assert run(["search", "small", "--trials", "4", *folders]) == 0
    capsys.readouterr()
    assert [int(cell) for cell in cells()] == [2, 15, 7]


def test_a_search_ends_with_what_it_found_beside_the_papers_value(
    folders: list[str], trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    assert run(["search", "small", "--trials", "3", "--json", str(found), *folders]) == 0
    shown = capsys.readouterr().out
    assert "lr 0.0625" in shown
    assert "its own scaling of mu" in shown
    first, second = json.loads(found.read_text())
    assert first == {
        **{"data": "mnist", "model": "mlp-1x4", "method": "adam", "tried": 3},
        **{"options": {"lr": 0.5}, "validation_accuracy": 0.625, "paper": {"lr": 0.0625}},
    }
    best = max(row["options"]["lr"] for row in rows(tmp_path)[3:])
    assert (second["tried"], second["options"]["lr"], second["validation_accuracy"]) == (3, best, best)
    assert {"torch", "cpu"} <= set(rows(tmp_path)[0]["environment"])
    assert trained.parts == {"validation"}


def test_a_stopped_search_says_that_it_can_go_on_and_does(
    folders: list[str], trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained.stop_after = 2
    assert run(["search", "small", "--trials", "4", *folders]) == 130
    assert "small.jsonl, and the same command goes on" in capsys.readouterr().err
    assert len(rows(tmp_path)) == 5, "the grid, and one of two proposals"
    trained.stop_after = None
    assert run(["search", "small", "--trials", "4", *folders]) == 0
    assert [row["trial"] for row in rows(tmp_path)] == [0, 1, 2, 0, 1, 2, 3]
    assert len(trained.calls) == 3


@pytest.mark.parametrize(
    "name, message",
    [
        ("smal", "unknown figure 'smal'; did you mean 'small'"),
        ("fixed", "figure 'fixed' declares no searches, its settings are fixed; those with searches: small"),
    ],
)
def test_a_figure_that_cannot_be_searched_is_named(
    name: str, message: str, folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", name, *folders]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_history_and_a_missing_optuna_are_one_line(
    folders: list[str],
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run(["search", "small", *folders]) == 2
    assert 'pip install ".[dev]"' in capsys.readouterr().err
    assert len(rows(tmp_path)) == 3, "the grid came first, and is kept"
    path = tmp_path / "results/search/small.jsonl"
    path.write_text("{broken\n" + path.read_text())
    assert run(["search", "small", *folders]) == 2
    assert "line 1 of" in capsys.readouterr().err


def test_every_search_of_the_repository_is_of_a_run_of_its_figure_and_can_be_made_as_ensembles() -> None:
    for figure in load(FIGURES).values():
        runs = {(each.data, each.model, each.method) for each in figure.runs if isinstance(each, Run)}
        for each in figure.searches:
            if isinstance(each.run, Learner):  # they train one at a time, tests/test_learning.py builds them
                continue
            template, known = each.template, data.dataset(each.run.data)
            assert (template.data, template.model, template.method) in runs
            built = []
            for options in each.propose([])[:2]:
                model = models.create(template.model, known.sample_shape, known.classes)
                built.append(methods.create(template.method, model, **template.options, **options))
            if not compatible.refusal(built[0]):
                compatible.check(built)
