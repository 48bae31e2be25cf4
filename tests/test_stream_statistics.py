"""Running statistics against numpy's own, over all samples at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("river")
from altmin.stream.statistics import FARTHEST, RunningStatistics


def table(seed: int, samples: int, features: int, absent: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    x = random.normal(3.0, 2.0, (samples, features)) * 10.0 ** random.integers(-3, 4, features)
    return np.where(random.random(x.shape) < absent, np.nan, x)


def after(x: np.ndarray, forget: float = 1.0) -> RunningStatistics:
    statistics = RunningStatistics(x.shape[1], forget)
    for row in x:
        statistics.update(row)
    return statistics


@given(st.integers(0, 1000), st.integers(1, 30), st.sampled_from([0.0, 0.4]), st.sampled_from([1.0, 0.9, 0.3]))
def test_mean_and_variance_are_those_of_the_weighted_samples_that_have_the_feature(
    seed: int, samples: int, absent: float, forget: float
) -> None:
    x = table(seed, samples, 4, absent)
    statistics = after(x, forget)
    for j, column in enumerate(x.T):
        here = column[~np.isnan(column)]
        if len(here):
            weights = forget ** np.arange(len(here))[::-1]
            mean = np.average(here, weights=weights)
            variance = np.average((here - mean) ** 2, weights=weights)
            np.testing.assert_allclose(statistics.mean[j], mean, rtol=1e-10)
            np.testing.assert_allclose(statistics.variance[j], variance, rtol=1e-8, atol=1e-20 * mean**2)
            np.testing.assert_allclose(statistics.weight[j], weights.sum())
        else:
            assert statistics.weight[j] == statistics.variance[j] == 0


def test_without_forgetting_they_are_numpys_mean_and_standard_deviation() -> None:
    x = table(0, 200, 5, 0.0)
    statistics = after(x)
    np.testing.assert_allclose(statistics.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.standardise(x), (x - x.mean(0)) / x.std(0), rtol=1e-9, atol=1e-12)


def test_a_small_variance_beside_a_large_mean_is_not_lost() -> None:
    x = 1e9 + np.random.default_rng(0).normal(size=(500, 1))
    np.testing.assert_allclose(after(x).variance, x.var(0), rtol=1e-6)


def test_what_is_absent_or_has_not_varied_is_zero_and_outliers_are_bounded() -> None:
    x = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, np.nan], [2.0, 5.0, np.nan]])
    statistics = after(x)
    assert statistics.standardise(np.array([np.nan, 7.0, 4.0])).tolist() == [0.0, 0.0, 0.0]
    assert statistics.standardise(np.array([1e6, 5.0, 0.0]))[0] == FARTHEST
    assert statistics.standardise(np.array([-1e6, 5.0, 0.0]))[0] == -FARTHEST


@pytest.mark.parametrize("forget", [1.0, 0.8])
def test_a_feature_that_counts_as_seen_has_the_statistics_of_one_that_was_always_zero(forget: float) -> None:
    x = table(1, 12, 3, 0.0)
    x[:7, 2] = 0.0
    late = after(x[:7, :2], forget)
    late.grow(1, seen=True)
    for row in x[7:]:
        late.update(row)
    early = after(x, forget)
    for name in ("weight", "mean", "scatter"):
        np.testing.assert_allclose(getattr(late, name), getattr(early, name), rtol=1e-12)


def test_a_feature_that_is_new_has_statistics_of_its_own_samples_alone() -> None:
    x = table(2, 12, 2, 0.0)
    late = after(x[:7, :1])
    late.grow(1)
    for row in x[7:]:
        late.update(row)
    np.testing.assert_allclose(late.mean, [x[:, 0].mean(), x[7:, 1].mean()])
    np.testing.assert_allclose(late.variance, [x[:, 0].var(), x[7:, 1].var()])


@pytest.mark.parametrize("forget", [0.0, 1.5, float("nan")])
def test_a_factor_that_is_none_is_refused(forget: float) -> None:
    with pytest.raises(ValueError, match="forget"):
        RunningStatistics(1, forget)
