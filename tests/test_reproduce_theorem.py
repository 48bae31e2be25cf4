"""Curves of the theorem are those of the study that `altmin theory` makes."""

import torch

from altmin.paper.reproduce.measurement import Setting
from altmin.paper.reproduce.theorem import TheoremCurve

ROW = {
    "rows": [
        {
            "case": "quadratic",
            "K": 2,
            "coupling": 0.5,
            "condition": 10.0,
            "times": [1, 2],
            "mean": [3, 4],
            "bound": [5, 6],
        },
        {
            "case": "quadratic",
            "K": 4,
            "coupling": 0.5,
            "condition": 10.0,
            "times": [1, 2],
            "mean": [7, 8],
            "bound": None,
        },
    ]
}


def test_a_curve_is_the_error_or_the_bound_of_its_problem() -> None:
    error = TheoremCurve("error", "p", blocks=2, coupling=0.5, condition=10.0)
    assert error.points(ROW, "rounds") == [(1, 3), (2, 4)]
    assert TheoremCurve("bound", "p", blocks=2, shown="bound").points(ROW, "rounds") == [(1, 5), (2, 6)]
    assert TheoremCurve("error", "p", blocks=4).points(ROW, "rounds") == [(1, 7), (2, 8)]
    assert TheoremCurve("bound", "p", blocks=4, shown="bound").points(ROW, "rounds") == []


def test_all_curves_of_one_length_share_a_study() -> None:
    assert TheoremCurve("a", "p", blocks=2).config() == TheoremCurve("b", "q", shown="bound").config()
    assert TheoremCurve("a", "p").config() != TheoremCurve("a", "p").reduced().config()


def test_the_measured_error_falls_and_stays_below_its_bound() -> None:
    curve = TheoremCurve("error", "p", blocks=2, coupling=0.5, condition=10.0, steps=100, runs=40)
    (row,) = curve.make([0], Setting(torch.device("cpu")), lambda *_: None)
    found = next(r for r in row["rows"] if r["case"] == "quadratic" and r["K"] == 2 and r["coupling"] == 0.5)
    assert found["mean"][-1] < found["mean"][0] / 5
    assert all(error <= limit for error, limit in zip(found["mean"], found["bound"], strict=True))
