"""`python -m reproduction figure`: lists figures, makes one, and keeps its results and its picture."""

import json
from pathlib import Path

import pytest
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from reproduction.__main__ import run
from reproduction.figure import load
from reproduction.folders import FIGURES
from reproduction.learning import Learner
from reproduction.results import Results
from reproduction.run import Run

DECLARED = """
from reproduction import Claim, Figure, Finding, Run, Statement
RUN = Run("adam", "mlp-1x4", batch_size=20, seeds=2, limit=40, eval_batches=(1,))
def judge(results):
    return Finding("reached", "reproduced" if min(results.values(RUN, epoch=-1)) > 2 else "differs", "too few batches")
CLAIM = Claim("C1", "it learns", "0.9", [Statement("it does", "the accuracy is above 2", judge)])
FIGURES = [Figure("small", "a small figure", [RUN], ["epochs"], 1, [CLAIM])]
"""

# ruff: noqa: F811


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/small.py").write_text(DECLARED)
    return ["--figures", str(tmp_path / "figures"), "--results", str(tmp_path / "results")]


def test_without_a_name_the_figures_are_listed_with_their_cost(
    folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["figure", *folders]) == 0
    shown = capsys.readouterr().out
    assert "a small figure" in shown
    assert "C1" in shown


def test_a_figure_is_made_from_scratch_and_its_claims_judged(
    folders: list[str], made_up: tuple[Tensor, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ["verify", *folders, "--json", str(tmp_path / "before.json")]
    assert run(before) == 2
    assert f"there is no folder {tmp_path / 'results'} of results" in capsys.readouterr().err
    (tmp_path / "results").mkdir()
    assert run(before) == 0
    assert json.loads((tmp_path / "before.json").read_text())[0]["verdict"] == "not run"
    assert "because: make its runs with python -m reproduction figure small" in capsys.readouterr().out
    assert run(["figure", "small", *folders]) == 0
    rows = [json.loads(line) for line in (tmp_path / "results/small.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in rows] == [0, 1]
    assert {"torch", "cpu"} <= set(rows[0]["environment"])
    assert (tmp_path / "results/small.png").read_bytes().startswith(b"\x89PNG")
    assert "in epochs" in capsys.readouterr().out
    assert run(["verify", *folders, "--json", str(tmp_path / "after.json")]) == 0
    found = json.loads((tmp_path / "after.json").read_text())
    assert [(row["claim"], row["verdict"]) for row in found] == [("C1", "differs")]
    shown = capsys.readouterr().out
    assert "C1  it learns (0.9): differs" in shown
    for line in ("criterion: the accuracy is above 2", "found: reached", "because: too few batches"):
        assert line in shown
    assert "Of 1 claims: 0 reproduced, 0 exceeded, 1 differs, 0 refuted." in shown


def test_a_quick_look_leaves_the_results_alone(
    folders: list[str], made_up: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    assert run(["figure", "small", "--quick", "--out", str(tmp_path / "look"), *folders]) == 0
    assert not (tmp_path / "results").exists()
    assert len((tmp_path / "look/small-quick.jsonl").read_text().splitlines()) == 1


def test_an_unknown_figure_is_answered_with_the_nearest(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["figure", "smal", *folders]) == 2
    assert "unknown figure 'smal'; did you mean 'small'" in capsys.readouterr().err


@pytest.mark.parametrize("name", load(FIGURES))
def test_every_figure_can_be_told_made_smaller_and_judged(name: str) -> None:
    figure = load(FIGURES)[name]
    assert len({each.panel for each in figure.runs}) == len(figure.panels)
    smaller = figure.smaller()
    assert smaller.runs
    for each in [*figure.runs, *smaller.runs]:
        assert json.loads(json.dumps(each.config())) == each.config(), "as a file of results gives it back"
    for claim in figure.claims:
        for each in claim.statements:
            assert each.criterion
            with pytest.raises(KeyError):
                each.judge(Results([]))


@pytest.mark.parametrize("name", load(FIGURES))
def test_every_run_of_a_figure_can_be_built(name: str) -> None:
    from altmin import data, methods, models

    runs = {json.dumps(each.config()): each for each in load(FIGURES)[name].runs if isinstance(each, Run)}
    for each in runs.values():
        if isinstance(each, Learner):  # tests/test_learning.py builds these
            continue
        known = data.dataset(each.data)
        model = models.create(each.model, known.sample_shape, known.classes)
        methods.create(each.method, model, **each.options)


def test_all_nineteen_claims_are_judged_by_some_figure() -> None:
    claims = {claim.id for figure in load(FIGURES).values() for claim in figure.claims}
    assert claims == {f"C{n}" for n in range(1, 20)}
