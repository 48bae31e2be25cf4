"""The constants of the theorem, and the report on its assumptions."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altmin.paper.theory import bounds
from altmin.paper.theory.constants import Constants, assumptions, harmonic
from altmin.paper.theory.quadratic import family


def test_both_values_of_xi() -> None:
    c = family(2, 0.0, 10.0).constants()
    assert c.xi() == 1
    assert c.xi("as-printed") == pytest.approx(20 / 11)
    with pytest.raises(ValueError, match="did you mean 'as-printed'"):
        c.xi("printed")


@pytest.mark.parametrize(
    "change, name, margin",
    [
        ({"coupling": 1.3}, "gradient stability", -0.3),
        ({"start": 1.25}, "a start within r/2 of it", -0.25),
    ],
)
def test_the_report_names_the_assumption_that_fails_and_by_how_much(
    change: dict[str, float], name: str, margin: float
) -> None:
    p = family(3, change.get("coupling", 0.5), 4.0)
    if "start" in change:
        start = p.start.copy()
        start[1] *= change["start"] / np.linalg.norm(start[1])
        p = dataclasses.replace(p, start=start)
    (failing,) = [a for a in p.assumptions() if not a.holds]
    assert (failing.name, failing.margin) == (name, pytest.approx(margin))
    assert "start" not in change or failing.where.startswith("block 2")


@given(st.floats(1e-3, 1e3), st.floats(1, 1e4))
def test_the_printed_xi_of_one_block_lies_between_its_curvature_and_twice_that(lam: float, condition: float) -> None:
    value = harmonic(lam, lam * condition)
    assert lam * (1 - 1e-12) <= value <= 2 * lam
    assert 1 / value == pytest.approx((1 / lam + 1 / (lam * condition)) / 2), "the harmonic mean"


def test_the_constants_of_several_blocks_are_the_worst_and_the_sum() -> None:
    c = Constants(strong=(2.0, 1.0, 3.0), smooth=(4.0, 5.0, 6.0), stability=(0.1, 0.3, 0.2), moments=(1.0, 2.0, 4.0))
    assert (c.blocks, c.gamma, c.sigma2, c.condition) == (3, 0.3, 7.0, 5.0)
    assert (c.xi(), c.xi("as-printed")) == (1.0, pytest.approx(10 / 6))
    assert c.limit() == pytest.approx(1 / 3)
    assert c.step_size(3) == bounds.step_size(3, 1.0, 0.3, 3)
    assert c.bound(50, 2.0, "as-printed") == bounds.bound(50, 2.0, 10 / 6, 0.3, 3, 7.0)


def test_a_point_with_a_slope_is_no_optimum_and_a_flat_block_not_strongly_convex() -> None:
    c = Constants((1.0, 0.0), (4.0, 2.0), (0.0, 0.0), (1.0, 1.0))
    failing = {a.name: a for a in assumptions(c, [0.1, 0.1], [1.0, 1.0], slope=0.2) if not a.holds}
    assert list(failing) == ["strong convexity", "gradient stability", "a stationary optimum"]
    assert failing["a stationary optimum"].margin == pytest.approx(-0.05)
    assert failing["strong convexity"].where.startswith("block 2")
