"""What both estimators do with samples, held against the same steps taken by hand."""

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import checks  # noqa: E402

import altmin  # noqa: E402
from altmin.stream import OnlineClassifier, OnlineRegressor, settings  # noqa: E402
from altmin.stream.features import RunningStatistics  # noqa: E402
from altmin.stream.method_net import MethodNet  # noqa: E402

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
    """All of river's checks of the default, each on one of the streams it has, in turn; of AM-mem those in which
    features come and go."""
    found = []
    for kind, method in itertools.product(ESTIMATORS, ("gauss-newton", "am-adam", "am-mem-fitted")):
        by_name: dict[str, list[Any]] = {}
        for check in checks.yield_checks(kind(method=method)):
            if method == "gauss-newton" or "learn_many" in check.__name__:
                by_name.setdefault(check.__name__, []).append(check)
        for i, (name, each) in enumerate(by_name.items()):
            marks = pytest.mark.slow if "memory_growth" in name and kind is OnlineClassifier else ()  # a long stream
            found.append(
                pytest.param(kind, method, each[i % len(each)], id=f"{kind.__name__}-{method}-{name}", marks=marks)
            )
    return found


@pytest.mark.parametrize("kind, method, check", cases())
def test_rivers_own_checks_pass(kind: Any, method: str, check: Any) -> None:
    model = kind(method=method)
    assert not model._unit_test_skips()
    check(model.clone())


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("method", ["am-adam", "am-mem-fitted", "adam"])
def test_a_feature_that_joins_late_is_learnt_as_if_it_had_been_zero_from_the_start(kind: Any, method: str) -> None:
    options = {"damping": 0.0} if method == "am-mem-fitted" else None  # or it depends on the number of inputs
    late = learnt(kind((5,), method, seed=1, absent="zero", options=options), stream(10))
    early = copy.deepcopy(late)
    early._admit(["z"])
    learnt(late, stream(15, seed=2))
    learnt(early, [({**x, "z": 0.0}, y) for x, y in stream(15, seed=2)])
    late._admit(["z"])
    with torch.no_grad():  # chance gives new inputs their weights
        late.network[1].weight[:, 3] = early.network[1].weight[:, 3]
    for x, y in stream(10, 4, seed=3):
        shown = {**x, "z": x.pop("d")}
        assert answer(late, shown) == pytest.approx(answer(early, shown), rel=1e-9)
        late.learn_one(shown, y)
        early.learn_one(shown, y)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("method", sorted(settings.DEFAULTS))
def test_a_new_feature_changes_no_prediction_for_samples_without_it(kind: Any, method: str) -> None:
    model = learnt(kind((5, 4), method, seed=1), stream(20))
    other = copy.deepcopy(model)
    other._admit(["z", "y"])
    assert other.feature_names == ["a", "b", "c", "z", "y"]
    for x, _ in stream(5, seed=3):
        assert answer(other, x) == pytest.approx(answer(model, x), rel=1e-12)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_one_sample_is_one_step_on_its_standardised_values(kind: Any) -> None:
    model = learnt(kind((5,), "am-adam", seed=1), stream(10))
    method, (x, y) = copy.deepcopy(model._net.method), stream(1, seed=8)[0]
    rows = np.array([list(x.values()) for x, _ in [*stream(10), (x, y)]])
    z = torch.from_numpy((rows[-1:] - rows.mean(0)) / rows.std(0))
    if kind is OnlineClassifier:
        target = torch.tensor([model.classes.index(y)])
    else:
        ys = np.array([y for _, y in [*stream(10), (x, y)]], dtype=float)
        target = torch.tensor([[(ys[-1] - ys.mean()) / ys.std()]])
    method.step(z, target)
    model.learn_one(x, y)
    torch.testing.assert_close([*method.model.parameters()], [*model.network.parameters()], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_mini_batch_is_one_step_on_all_of_its_rows(kind: Any) -> None:
    model = learnt(kind((5,), "am-adam", seed=1, batch_size=4), stream(10))
    method, more = copy.deepcopy(model._net.method), stream(6, seed=8)
    statistics, target = copy.deepcopy(model._statistics), copy.deepcopy(getattr(model, "_target", None))
    rows = np.array([list(x.values()) for x, _ in more])
    for part in (slice(0, 4), slice(4, 6)):
        for row in rows[part]:
            statistics.update(row)
        if kind is OnlineClassifier:
            y = torch.tensor([model.classes.index(y) for _, y in more[part]])
        else:
            ys = np.array([[float(y)] for _, y in more[part]])
            for each in ys:
                target.update(each)
            y = torch.from_numpy(target.standardise(ys))
        method.step(torch.from_numpy(statistics.standardise(rows[part])), y)
    model.learn_many(pd.DataFrame([x for x, _ in more]), pd.Series([y for _, y in more]))
    torch.testing.assert_close([*method.model.parameters()], [*model.network.parameters()], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("method", sorted(settings.DEFAULTS))
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_goes_on_as_the_original_does(kind: Any, method: str, copied: Any) -> None:
    model = learnt(kind((5,), method, seed=1), stream(10))
    other = copied(model)
    more = [({**x, "z": x["a"]}, y) for x, y in stream(6, seed=8)]
    untouched = answer(model, more[0][0])
    learnt(other, more)
    assert answer(model, more[0][0]) == untouched
    learnt(model, more)
    assert answer(model, more[0][0]) == answer(other, more[0][0]) != untouched


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_without_standardising_the_network_sees_the_values_themselves(kind: Any) -> None:
    model = learnt(kind((5,), seed=1, standardise=False), stream(10))
    x = stream(1, seed=4)[0][0]
    shown = model._inputs(model._features.row({"a": x["a"], "c": x["c"]})[None])
    np.testing.assert_array_equal(shown, [[x["a"], 0.0, x["c"]]])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_what_cannot_be_learnt_changes_nothing(kind: Any) -> None:
    model = learnt(kind((5,), seed=1), stream(10))
    before = pickle.dumps(model)
    x, y = stream(1)[0]
    for wrong, target in (({**x, "new": {}}, y), ({**x, "new": np.inf}, y), ({**x, "new": 1.0}, None)):
        with pytest.raises(ValueError, match="nothing was learnt"):
            model.learn_one(wrong, target)
    with pytest.raises(ValueError, match="nothing was learnt"):
        model.learn_many(pd.DataFrame([x, {**x, "new": np.inf}]), pd.Series([y, y]))
    with pytest.raises(ValueError, match="2 samples, 1 targets"):
        model.learn_many(pd.DataFrame([x, x]), pd.Series([y]))
    assert pickle.dumps(model) == before


def test_statistics_fade_by_the_factor_that_was_given() -> None:
    model = learnt(OnlineRegressor((5,), seed=1, forget=0.9), stream(30))
    by_hand = RunningStatistics(3, 0.9)
    for x, _ in stream(30):
        by_hand.update(np.array(list(x.values())))
    np.testing.assert_array_equal(model._statistics.mean, by_hand.mean)
    weights = 0.9 ** np.arange(30)[::-1]
    mean = np.average([y for _, y in stream(30)], weights=weights)
    assert model._target.mean[0] == pytest.approx(mean)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_options_that_make_no_sense_are_refused(kind: Any) -> None:
    for wrong in (
        {"hidden": [5]},
        {"hidden": (0,)},
        {"method": "dtp"},
        {"batch_size": 0},
        {"absent": "max"},
        {"forget": 1.1},
        {"options": {"sahre": 0.1}},
    ):
        with pytest.raises((ValueError, TypeError)):
            kind(**wrong)


def refused(model: Any, words: str, *calls: Any, error: Any = (ValueError, TypeError)) -> None:
    """Every call is refused with such words, and changes nothing."""
    for call in calls:
        before, attributes = pickle.dumps(model), dict(vars(model))
        with pytest.raises(error, match=words):
            call()
        assert pickle.dumps(model) == before
        assert all(vars(model)[name] is value for name, value in attributes.items())


def frame(samples: list[Sample]) -> tuple[Any, Any]:
    return pd.DataFrame([x for x, _ in samples]), pd.Series([y for _, y in samples])


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("method", sorted(set(settings.DEFAULTS) - {"gauss-newton"}))
def test_a_step_that_diverges_changes_nothing(kind: Any, method: str) -> None:
    model = learnt(kind((5,), method, seed=1, standardise=False, batch_size=9), stream(10))
    for p in model.network.parameters():
        p.data *= 1e160
    X, y = frame([({"a": sign, "b": 2 * sign, "c": -3 * sign}, y) for sign in (1.0, -1.0) for y in (0, 1)])
    refused(model, "diverged", lambda: model.learn_many(X, y), error=altmin.Diverged)
    refused(model, "diverged", lambda: model.learn_many(X.assign(new=1.0), y), error=altmin.Diverged)
    refused(model, "output is not finite", lambda: model.predict_many(1e90 * X))
    for p in model.network.parameters():
        p.data /= 1e160
    model.learn_many(X, y)
    assert model.predict_many(X).tolist() == [model.predict_one(x) for x in X.to_dict("records")]


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("first", [0, 10])
def test_a_table_is_learnt_as_a_whole_or_not_at_all(kind: Any, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, steps = learnt(kind((5,), "am-mem-fitted", seed=1), stream(first)), itertools.count()
    learn = MethodNet.learn

    def diverge(self: Any, *batch: Any) -> None:
        learn(self, *batch)
        if next(steps) == 2:
            raise altmin.Diverged("the third step")

    monkeypatch.setattr(MethodNet, "learn", diverge)
    X, y = frame(stream(9, 4))
    refused(model, "third step", lambda: model.learn_many(X, y + 2), error=altmin.Diverged)
    monkeypatch.undo()
    whole, other = copy.deepcopy(model), learnt(kind((5,), "am-mem-fitted", seed=1), stream(first))
    for each in (whole, other):
        each.learn_many(X, y + 2)
    x = stream(1, 4, seed=3)[0][0]
    assert answer(whole, x) == answer(other, x)


ODD: list[tuple[Any, str]] = [
    (10**400, r"infinite or beyond 1e\+100"),
    (np.zeros(1), "a number or a text is expected"),
    (1 + 1j, "a number or a text is expected"),
    ({}, "a number or a text is expected"),
]


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("value, words", ODD)
def test_a_value_that_is_no_float_is_refused_and_named(kind: Any, value: Any, words: str) -> None:
    model, words = learnt(kind((5,), seed=1), stream(10)), f"feature 'b' is .*{words}"
    x: dict[str, Any] = {"a": 1.0, "b": value}
    refused(model, words, lambda: model.learn_one(x, 1), lambda: model.predict_one(x))
    X = pd.DataFrame({"a": [1.0, 1.0], "b": pd.Series([1.0, value], dtype=object)})
    refused(model, words, lambda: model.learn_many(X, [0, 1]), lambda: model.predict_many(X))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_samples_and_targets_of_another_form_are_refused(kind: Any) -> None:
    model, (X, y) = learnt(kind((5,), seed=1), stream(10)), frame(stream(1))
    for wrong in (3, None, [[1]], "ab", X.iloc[0]):
        words = "a sample is a dict of features"
        refused(model, words, lambda wrong=wrong: model.learn_one(wrong, 1), lambda wrong=wrong: answer(model, wrong))
    for wrong in (None, 3, "y", {"y": 1}, pd.DataFrame({"y": y})):
        refused(model, "targets are a Series or a list", lambda wrong=wrong: model.learn_many(X, wrong))
    twice = pd.concat([X, X], axis=1)
    refused(model, "two columns are called 'a'", lambda: model.learn_many(twice, y), lambda: model.predict_many(twice))
    refused(model, "name equals itself, given NaN", lambda: model.learn_one({float("nan"): 1.0}, 1))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_features_beyond_the_largest_number_are_refused(kind: Any) -> None:
    model = learnt(kind((5,), seed=1, max_features=4), stream(10))
    words = f"5 features are more than max_features=4; give {kind.__name__} a larger one"
    more = {"d": 1.0, "e": 2.0}
    refused(model, words, lambda: model.learn_one(more, 1), lambda: model.learn_many(pd.DataFrame([more]), [1]))
    model.learn_one({"d": 1.0}, 1)
    assert model.feature_names == ["a", "b", "c", "d"]
    assert [settings.max_features(method) for method in ("am-adam", "am-mem-fitted")] == [20_000, 1_000]
    memory = kind((5,), "am-mem-fitted", seed=1)
    refused(memory, "1,001 features are more", lambda: memory.learn_one(dict.fromkeys(range(1001), 1.0), 1))
    for wrong in (0, 2.5, "many"):
        with pytest.raises((ValueError, TypeError), match="max_features"):
            kind(max_features=wrong)
