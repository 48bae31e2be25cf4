"""`reproduction theory`: it writes what was measured, its verdicts follow from its numbers, its errors are one line."""

import json
from typing import Any

import numpy as np
import pytest
from theory_problems import rule_of

from reproduction.__main__ import run
from reproduction.theory import family, picture, scheme, study
from reproduction.theory.table import remarks, table

SMALL = ["theory", "--steps", "200", "--runs", "64", "--blocks", "2,3", "--coupling", "0,0.5", "--condition", "4"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("theory") / "t.json"
    assert run([*SMALL, "--seed", "5", "--json", str(path)]) == 0
    return json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_json_has_the_settings_and_a_row_for_every_problem(result: dict[str, Any]) -> None:
    assert list(result) == [
        *("seed", "config", "environment", "rows", "checks", "printed_bound_broken_after", "reports"),
    ]
    assert result["config"]["blocks"] == [2, 3]
    asked = [(row["K"], row["coupling"], row["condition"]) for row in result["rows"] if row["case"] == "quadratic"]
    assert asked == [(2, 0, 4), (2, 0.5, 4), (3, 0, 4), (3, 0.5, 4)]
    for row in result["rows"]:
        lengths = {len(row[key]) for key in ("times", "runs", "mean", "standard_error")}
        assert lengths == {len(scheme.times_until(200))}


def test_a_row_holds_what_the_scheme_measures_with_the_same_seed(result: dict[str, Any]) -> None:
    problems = [family(3, share, 4.0, 2.0) for share in (0, 0.5)]
    m = scheme.run(scheme.Stack(problems), rule_of(problems), 200, 64, seed=6)
    rows = [row for row in result["rows"] if row["case"] == "quadratic" and row["K"] == 3]
    for j, row in enumerate(rows):
        assert row["mean"] == pytest.approx(m.mean[j].tolist(), rel=1e-12)
        limit = problems[j].constants().bound(np.array(m.times, float), problems[j].start_error)
        assert row["bound"] == pytest.approx(np.asarray(limit).tolist())
        assert row["tightness"] == pytest.approx(row["bound"][-1] / row["mean"][-1])


def test_what_lies_outside_is_marked_and_past_the_limit_has_no_bound(result: dict[str, Any]) -> None:
    rows = {(row["case"], row["condition"]): row for row in result["rows"]}
    assert rows["past the limit", 10]["bound"] is None
    assert rows["past the limit", 10]["outside"]
    assert rows["no projection", 100]["below_bound"] is False
    assert rows["no projection", 100]["broken"]
    assert rows["no noise, printed xi", 10]["outside"] == "xi as printed"
    inside = {row["case"] for row in result["rows"] if not row["outside"]}
    assert inside == {"quadratic", "no noise", "no noise, uneven", "strong noise", "network, held"}
    assert all(row["below_bound"] for row in result["rows"] if not row["outside"])


@pytest.mark.parametrize(
    "broken, code, said",
    [
        (True, 1, "the bound is broken inside the theorem, first by K = 2, coupling 0"),
        (False, 0, "Of 1 more the mean is below the bound, or within its errors of it: raise --runs to tell"),
    ],
)
def test_a_bound_that_is_broken_is_told_from_one_with_too_few_runs_to_tell(
    broken: bool, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = study.study

    def changed(*arguments: Any) -> dict[str, Any]:
        found = honest(*arguments)
        found["rows"][0] |= {"below_bound": False, "broken": broken}
        return found

    monkeypatch.setattr(study, "study", changed)
    assert run([*SMALL[:-2], "--condition", "1", "--steps", "10"]) == code
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--blocks", "9"], "from 2 to 8, given 9"),
        (["--coupling", "half"], "half"),
        (["--coupling", "-1"], "at least 0, given -1"),
        (["--condition", "0.5"], "at least 1, given 0.5"),
        (["--condition", "inf"], "at least 1, given inf"),
        (["--noise", "inf"], "at least 0, given inf"),
        (["--plot", "x.txt"], "should end in .png"),
        (["--json", "nowhere/t.json"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_runs(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "study", lambda *_: pytest.fail("it ran"))
    assert run(["theory", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_quick_is_shorter_and_help_has_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def stop(*arguments: Any) -> None:
        asked.append(arguments[4:6])
        raise ValueError("enough")

    monkeypatch.setattr(study, "study", stop)
    assert run(["theory", "--quick"]) == 2
    assert run(["theory"]) == 2
    assert asked == [(10_000, 1_000), (100_000, 2_000)]
    assert run(["theory", "--help"]) == 0
    assert "Example: python -m reproduction theory" in capsys.readouterr().out


def test_the_table_shows_mean_error_and_bound_and_the_remarks_the_verdict(result: dict[str, Any]) -> None:
    drawn = table(result)
    head = [str(column.header) for column in drawn.columns]
    assert head[4:6] == ["t = 10", "t = 100"]
    row = result["rows"][1]
    i = row["times"].index(100)
    shown = list(drawn.columns[5].cells)[1]
    assert shown.startswith(f"{row['mean'][i]:.2e} ± ")
    assert shown.endswith(f"{row['bound'][i]:.2e}")
    said = "\n".join(remarks(result))
    inside = [row for row in result["rows"] if not row["outside"]]
    assert f"in {len(inside)} of {len(inside)} problems" in said
    assert "as-printed: 0.8182 <= 0.6694 FAILS" in said
    assert "network, free: gradient stability fails at" in said


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return study.study([2, 3], [0, 0.5], [4.0], noise=2.0, steps=100, runs=16, seed=5, report=lambda *_: None)


def test_the_picture_shows_the_rows(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(picture.Figure, "savefig", lambda self, *_, **__: kept.append(self))
    picture.draw(small)
    inside, rates, beyond = kept[0].axes
    first = small["rows"][0]
    measured, limit = inside.get_lines()[:2]
    assert list(measured.get_ydata()) == first["mean"]
    assert list(limit.get_ydata()) == first["bound"]
    assert len(inside.get_lines()) == 4, "error and bound of the two problems with the fewest blocks"
    assert len(rates.get_lines()) == 4
    assert len(beyond.get_lines()) == 7
