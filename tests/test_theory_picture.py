"""The picture of `altmin theory` shows the rows of its result."""

from typing import Any

import pytest

from altmin.paper.theory import picture, study


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return study.study([2, 3], [0, 0.5], [4.0], noise=2.0, steps=100, runs=16, seed=5, report=lambda *_: None)


def test_the_picture_shows_the_rows(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(picture.Figure, "savefig", lambda self, *_, **__: kept.append(self))
    picture.draw(result)
    inside, rates, beyond = kept[0].axes
    first = result["rows"][0]
    measured, limit = inside.get_lines()[:2]
    assert list(measured.get_ydata()) == first["mean"]
    assert list(limit.get_ydata()) == first["bound"]
    assert len(inside.get_lines()) == 4, "error and bound of the two problems with the fewest blocks"
    assert len(rates.get_lines()) == 4
    assert len(beyond.get_lines()) == 7
