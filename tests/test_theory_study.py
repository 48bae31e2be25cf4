"""What `altmin theory` runs: its cases, its rates, and the verdicts that follow from the numbers."""

import numpy as np
import pytest

from altmin.paper.theory import study
from altmin.paper.theory.quadratic import Quadratic, family
from altmin.paper.theory.scheme import Measured, times_until


def test_the_printed_recursion_and_operator_are_refuted() -> None:
    verdicts = {(c.name, c.version): c.holds for c in study.lemmas()}
    assert {version for (_, version), holds in verdicts.items() if not holds} == {"as-printed"}
    assert len([v for v in verdicts.values() if not v]) == 3


def test_rates_without_noise_and_where_noise_dominates() -> None:
    """The exact expectation, so no run is needed: t^-3/2, t^-1, and with the printed xi t^(-1.5 lambda / xi)."""
    times = times_until(20_000)

    def fitted(p: Quadratic, kind: str = "corrected") -> float:
        etas = np.asarray(p.constants().step_size(np.arange(20_000.0), kind))
        return study.slope(times, p.exact_errors([float(e) for e in etas])[times]) or 0.0

    assert fitted(family(2, 0, 1, noise=0)) == pytest.approx(-1.5, abs=0.01)
    assert fitted(family(2, 0, 1, noise=2)) == pytest.approx(-1, abs=0.05)
    assert fitted(family(2, 0, 10, noise=0), "as-printed") == pytest.approx(-1.5 * 11 / 20, abs=0.01)


def test_a_coupling_past_the_limit_is_run_and_marked_outside() -> None:
    (group,) = study.grid([2], [1.2], [1.0], 2.0)
    assert group.cases[0].outside == "no gradient stability"
    assert group.cases[0].terms() == (1.0, 0.0, 2)


def test_the_slope_is_the_exponent_of_a_power_from_1000_on_or_over_the_last_decade() -> None:
    times = times_until(100_000)
    bent = [t**-0.5 if t < 1000 else 1000 * t**-1.5 for t in times]
    assert study.slope(times, bent) == pytest.approx(-1.5)
    short = times_until(100)
    assert study.slope(short, [1.0 if t < 10 else t**-2.0 for t in short]) == pytest.approx(-2)
    assert study.slope([1, 2, 5], [1.0, np.inf, 0.0]) is None, "no two points to fit"


def test_a_mini_batch_leaves_its_part_of_the_noise_and_the_step_size_as_it_was() -> None:
    case = study.Case("mini-batch", family(2, 0.5, 10, noise=2.0), noise_part=0.25)
    assert case.run_as().noise.tolist() == [0.5, 0.5]
    assert case.terms() == study.Case("one sample", case.problem).terms()


def test_a_mean_is_below_the_bound_or_has_broken_it_by_three_errors_or_neither() -> None:
    limit = np.array([1.0, 0.5])
    constants = family(2, 0.5, 10).constants()

    def verdict(last: float) -> tuple[bool, bool]:
        measured = Measured([1, 2], np.array([[0.1, last]]), np.array([[0.01, 0.01]]), [9, 9])
        row = study._entry("case", {}, constants, "corrected", "", measured, 0, limit)
        assert row["tightness"] == pytest.approx(0.5 / last)
        return row["below_bound"], row["broken"]

    assert [verdict(last) for last in (0.46, 0.48, 0.52, 0.54)] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
