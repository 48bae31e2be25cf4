"""Quadratic problems: their constants are those of the definitions, their moments those of all samples."""

import numpy as np
import pytest
from hypothesis import given
from theory_problems import SEEDS, random_problem

from altmin.paper.theory.quadratic import Quadratic, family


@given(SEEDS)
def test_the_constants_of_a_quadratic_are_those_of_its_hessian(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    c, H = p.constants(), p.hessian
    for d in range(p.blocks):
        own = np.linalg.eigvalsh(H[p.rows(d), p.rows(d)])
        assert (c.strong[d], c.smooth[d]) == pytest.approx((own[0], own[-1]))
        others = [np.linalg.norm(H[p.rows(d), p.rows(i)], 2) for i in range(p.blocks) if i != d]
        assert c.stability[d] == pytest.approx(max(others))
    assert all(a.holds for a in p.assumptions())


def test_sigma_is_attained_in_the_family_and_never_passed() -> None:
    p = family(3, 0.7, 5.0, noise=1.5)
    c, rng = p.constants(), np.random.default_rng(0)
    way = rng.standard_normal((20_000, 3, 2))
    points = p.radius[:, None] * way / np.linalg.norm(way, axis=2, keepdims=True)
    for d in range(3):
        seen = np.square(points.reshape(-1, 6) @ p.hessian[p.rows(d)].T).sum(1) + p.noise[d] ** 2
        assert seen.max() <= c.moments[d] * (1 + 1e-12)
        lean = np.zeros((3, 2))
        lean[:, 1] = -p.radius  # the steep axis; coupling is negative, so block d leans the other way
        lean[d] *= -1
        attained = np.square(p.hessian[p.rows(d)] @ lean.ravel()).sum() + p.noise[d] ** 2
        assert attained == pytest.approx(c.moments[d])


def test_exact_moments_are_those_of_all_samples() -> None:
    """Signs as noise, one coordinate in each of two blocks: four equally likely outcomes of a round."""
    p = Quadratic(
        np.array([[2.0], [3.0]]), np.array([[0, 0.5], [0.5, 0]]), np.array([0.7, 0.3]), np.ones(2), np.ones((2, 1)) / 2
    )
    squares = []
    for z1 in (0.7, -0.7):
        for z2 in (0.3, -0.3):
            a = 0.5 - 0.1 * (2 * 0.5 + 0.5 * 0.5 + z1)
            b = 0.5 - 0.1 * (3 * 0.5 + 0.5 * a + z2)
            squares.append(a**2 + b**2)
    assert p.exact_errors([0.1])[1] == pytest.approx(np.mean(squares))


@pytest.mark.parametrize(
    "given", [{"blocks": 9}, {"blocks": 1}, {"coupling": -0.1}, {"condition": 0.5}, {"noise": -1.0}]
)
def test_the_family_refuses_what_it_does_not_have(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(given.values())))):
        family(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"curvatures": np.array([[1.0], [0.0]])}, "curvatures must be above 0, given 0"),
        ({"coupling": np.array([[0.0, 0.1], [0.2, 0.0]])}, "coupling must be a symmetric 2 x 2 matrix"),
        ({"coupling": np.array([[0.1, 0.2], [0.2, 0.0]])}, "coupling has a diagonal that is not 0"),
        ({"noise": np.ones(3)}, "noise and radius need 2 entries and start 2 x 1"),
    ],
)
def test_a_problem_that_is_none_is_refused(change: dict[str, np.ndarray], words: str) -> None:
    sound = {
        "curvatures": np.ones((2, 1)),
        "coupling": np.zeros((2, 2)),
        "noise": np.ones(2),
        "radius": np.ones(2),
        "start": np.zeros((2, 1)),
    }
    with pytest.raises(ValueError, match=words):
        Quadratic(**{**sound, **change})
