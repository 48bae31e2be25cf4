"""What `altmin theory` shows: the rows of its result."""

import json
from typing import Any

import pytest

from altmin.cli import run
from altmin.paper.theory import picture, study
from altmin.paper.theory.table import remarks, table

SMALL = ["theory", "--steps", "200", "--runs", "64", "--blocks", "2,3", "--coupling", "0,0.5", "--condition", "4"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("theory") / "t.json"
    assert run([*SMALL, "--seed", "5", "--json", str(path)]) == 0
    return json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


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
