"""Streams: what the estimators do with samples, held against the same steps taken by hand, and river's own checks."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import checks  # noqa: E402

import altmin  # noqa: E402
from altmin.stream import OnlineClassifier, OnlineRegressor  # noqa: E402
from altmin.stream.features import FARTHEST, RunningStatistics  # noqa: E402

ESTIMATORS = (OnlineClassifier, OnlineRegressor)
Sample = tuple[dict[str, float], Any]


def stream(samples: int, features: int = 3, seed: int = 0) -> list[Sample]:
    random = np.random.default_rng(seed)
    x = random.normal(2.0, 3.0, (samples, features))
    y = x[:, 0] * x[:, 1] > 4
    return [(dict(zip("abcdef", row, strict=False)), int(each)) for row, each in zip(x.tolist(), y, strict=True)]


def learnt(model: Any, samples: list[Sample]) -> Any:
    for x, y in samples:
        model.learn_one(x, y)
    return model


def answer(model: Any, x: dict[str, float]) -> Any:
    return model.predict_proba_one(x) if isinstance(model, OnlineClassifier) else model.predict_one(x)


def cases() -> list[Any]:
    """All of river's checks, each on one of the streams it has, in turn."""
    found = []
    for kind in ESTIMATORS:
        by_name: dict[str, list[Any]] = {}
        for check in checks.yield_checks(kind()):
            by_name.setdefault(check.__name__, []).append(check)
        for i, (name, each) in enumerate(by_name.items()):
            marks = pytest.mark.slow if "memory_growth" in name and kind is OnlineClassifier else ()  # a long stream
            found.append(pytest.param(kind, each[i % len(each)], id=f"{kind.__name__}-{name}", marks=marks))
    return found


@pytest.mark.parametrize("kind, check", cases())
def test_rivers_own_checks_pass(kind: Any, check: Any) -> None:
    model = kind()
    assert not model._unit_test_skips()
    check(model.clone())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_new_feature_changes_no_prediction_for_samples_without_it(kind: Any) -> None:
    model = learnt(kind((5, 4), seed=1), stream(20))
    other = copy.deepcopy(model)
    other._admit(["z", "y"])
    assert other.feature_names == ["a", "b", "c", "z", "y"]
    for x, _ in stream(5, seed=3):
        assert answer(other, x) == pytest.approx(answer(model, x), rel=1e-12)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_goes_on_as_the_original_does(kind: Any, copied: Any) -> None:
    model = learnt(kind((5,), seed=1), stream(10))
    other = copied(model)
    more = [({**x, "z": x["a"]}, y) for x, y in stream(6, seed=8)]
    untouched = answer(model, more[0][0])
    learnt(other, more)
    assert answer(model, more[0][0]) == untouched
    learnt(model, more)
    assert answer(model, more[0][0]) == answer(other, more[0][0]) != untouched


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": [5]},
        {"hidden": (0,)},
        {"members": 0},
        {"max_features": -1},
        {"forget": 1.1},
        {"options": {"start": 0}},
        {"options": {"flor": 0.1}},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        kind(**wrong)


SAMPLE = {"a": 1.0, "b": 2.0, "c": 3.0}
REFUSED: dict[str, tuple[Any, ...]] = {
    "no dict": ([1.0], 1),
    "a list": ({**SAMPLE, "b": [1.0]}, 1),
    "a number beyond floats": ({**SAMPLE, "b": 10**400}, 1),
    "an array": ({**SAMPLE, "b": np.zeros(1)}, 1),
    "infinity of a new feature": ({**SAMPLE, "new": np.inf}, 1),
    "a name that is NaN": ({**SAMPLE, float("nan"): 1.0}, 1),
    "too many features": (dict.fromkeys("abcdefgh", 1.0), 1),
    "no target": ({**SAMPLE, "new": 1.0}, None),
    "NaN as a target": (SAMPLE, float("nan")),
    "a negative weight": (SAMPLE, 1, -1.0),
    "an infinite weight": (SAMPLE, 1, np.inf),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learnt_is_refused_and_changes_nothing(kind: Any, case: str) -> None:
    model = learnt(kind((5,), seed=1, max_features=6), stream(10))
    before = pickle.dumps(model)
    with pytest.raises((ValueError, TypeError)):
        model.learn_one(*REFUSED[case])
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_step_that_diverges_changes_no_weight(kind: Any) -> None:
    model = learnt(kind((5,), seed=1, standardise=False), stream(10))
    net = model._net
    for W in net.W:
        W *= 1e160
    before = copy.deepcopy(net.module.state_dict())
    for y in (0, 1):
        with pytest.raises(altmin.Diverged):
            model.learn_one({"a": 1.0, "b": 2.0, "c": -3.0}, y)
    torch.testing.assert_close(net.module.state_dict(), before, rtol=0, atol=0)
    with pytest.raises(ValueError, match="not finite"):
        model.predict_one({"a": 1e90, "b": 1e90})


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_table_is_its_rows(kind: Any) -> None:
    X = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "colour": ["red", None, "blue", "red"]}, index=range(10, 14))
    y, w = pd.Series([0, 1, 1, 0]), [0.5, 1.0, 2.0, 1.5]
    one, many = (kind((5,), seed=0) for _ in range(2))
    for x, target, weight in zip(X.to_dict("records"), y, w, strict=True):
        one.learn_one(x, target, w=weight)
    many.learn_many(X, y, w)
    assert many.feature_names == one.feature_names
    rows = X.to_dict("records")
    assert many.predict_many(X).tolist() == pytest.approx([one.predict_one(x) for x in rows])
    if kind is OnlineClassifier:
        for x, row in zip(rows, many.predict_proba_many(X).to_dict("records"), strict=True):
            assert row == pytest.approx(one.predict_proba_one(x), rel=1e-9)
        assert kind().predict_many(X).tolist() == [None] * 4
    assert list(many.predict_many(X).index) == list(X.index)
    before = pickle.dumps(many)
    for targets in (y[:3], [0, 1, 1, None], y.to_frame(), [0, 1, 1, 0, 0]):
        with pytest.raises((ValueError, TypeError)):
            many.learn_many(X, targets)
    assert pickle.dumps(many) == before


def blobs(samples: int, classes: str, seed: int = 0) -> list[tuple[dict[str, float], str]]:
    """Around one corner of a triangle for each class."""
    random = np.random.default_rng(seed)
    corner = {"a": (0.0, 4.0), "b": (4.0, 0.0), "c": (-4.0, -4.0)}
    found = []
    for _ in range(samples):
        name = classes[random.integers(len(classes))]
        u, v = random.normal(corner[name])
        found.append(({"u": u, "v": v}, name))
    return found


def test_before_two_classes_were_seen_nothing_is_computed() -> None:
    model = OnlineClassifier(seed=0)
    x = {"u": 1.0}
    assert (model.predict_proba_one(x), model.predict_one(x), model.network) == ({}, None, None)
    model.learn_one(x, "a")
    assert (model.predict_proba_one(x), model.predict_one(x), model.network) == ({"a": 1.0}, "a", None)


def test_a_new_class_leaves_the_ratios_of_the_others_as_they_were_and_is_learnt() -> None:
    model = learnt(OnlineClassifier((8,), members=1, seed=0), blobs(150, "ab"))
    x = {"u": 2.0, "v": 1.0}
    before = model.predict_proba_one(x)
    assert set(before) == {"a", "b"}
    model._admitted("c")  # the class joins, and no step is taken
    after = model.predict_proba_one(x)
    assert after["a"] / after["b"] == pytest.approx(before["a"] / before["b"], rel=1e-9)
    assert sum(after.values()) == pytest.approx(1.0)
    learnt(model, blobs(250, "abc", seed=1))
    assert model.classes == ["a", "b", "c"] or model.classes == ["b", "a", "c"]
    right = [model.predict_one(x) == y for x, y in blobs(200, "abc", seed=2)]
    assert np.mean(right) > 0.95


def test_true_and_false_of_numpy_are_those_of_python() -> None:
    model = OnlineClassifier((8,), seed=0)
    for y in (True, np.bool_(False), np.bool_(True), False):
        model.learn_one({"u": float(y)}, y)
    assert model.classes == [True, False]


def line(samples: int, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> list[tuple[dict[str, float], float]]:
    """y = shift + scale (2 u - v), without noise."""
    x = np.random.default_rng(seed).normal(size=(samples, 2))
    return [({"u": u, "v": v}, shift + scale * (2 * u - v)) for u, v in x.tolist()]


def test_the_target_of_the_network_is_standardised_and_its_output_put_back() -> None:
    model = OnlineRegressor((8,), seed=0, standardise=False)
    for x, y in line(20, 3.0, 100.0):
        model.learn_one(x, y)
    targets = np.array([y for _, y in line(20, 3.0, 100.0)])
    x = {"v": -1.0, "u": 0.5}
    output = model.network(torch.tensor([[0.5, -1.0]], dtype=torch.float64)).item()
    assert model.predict_one(x) == pytest.approx(targets.mean() + targets.std() * output, rel=1e-9)


def test_the_scale_and_the_shift_of_the_target_do_not_matter() -> None:
    found = []
    for scale, shift in ((1.0, 0.0), (1e4, 3e4)):
        model = OnlineRegressor((8,), seed=0)
        for x, y in line(60, scale, shift):
            model.learn_one(x, y)
        found.append((model.predict_one({"u": 1.0, "v": 0.0}) - shift) / scale)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


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
