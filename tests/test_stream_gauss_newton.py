"""Nets for single samples in numpy, against the method of the same name, and in the estimators."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import drift  # noqa: E402

import altmin  # noqa: E402
from altmin.methods.gauss_newton import GaussNewton  # noqa: E402
from altmin.stream import OnlineClassifier, OnlineRegressor  # noqa: E402
from altmin.stream import gauss_newton as module  # noqa: E402
from altmin.stream.gauss_newton import GaussNewtonNets  # noqa: E402

ESTIMATORS = (OnlineClassifier, OnlineRegressor)


def data(samples: int, inputs: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(samples, inputs))
    return x, (random.integers(classes, size=samples) if classes else np.sin(x[:, 0]) + x[:, 1])


@pytest.mark.parametrize("classes", [0, 2, 4])
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
@pytest.mark.parametrize("walk", [0.0, 1e-3])
def test_its_steps_are_those_of_the_method(classes: int, hidden: tuple[int, ...], walk: float) -> None:
    nets = GaussNewtonNets(3, hidden, classes, 0, members=2, walk=walk)
    loss = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    methods = [GaussNewton(nets.net(m), loss, forget=float(nets.memory.forget[m]), walk=walk) for m in range(2)]
    x, y = data(80, 3, classes)
    w = np.random.default_rng(1).uniform(0.5, 2.0, 80)
    for i in range(80):
        nets.learn(x[i : i + 1], y[i : i + 1], w[i : i + 1])
        target = torch.tensor([y[i]]) if classes else torch.tensor([[y[i]]])
        for method in methods:
            method.step(torch.tensor(x[i : i + 1]), target, sample_weight=torch.tensor(w[i : i + 1]))
    for m, method in enumerate(methods):
        for p, q in zip(nets.net(m).parameters(), method.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_many_inputs_have_a_diagonal_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the formulas for one linear layer: P a_i = P_ii a_i, and inputs of zero change nothing of theirs."""
    monkeypatch.setattr(module, "DENSE", 3)
    nets = GaussNewtonNets(4, (), 0, 0, members=1, floor=0.0)
    W, P, v = np.zeros(5), np.full(5, nets.memory.start), 1.0
    x, y = data(40, 4, 0)
    x *= np.random.default_rng(2).random(x.shape) < 0.5
    for row, target in zip(x, y, strict=True):
        a = np.append(1.0, row)
        e, q = target - W @ a, a @ (P * a)
        W = W + P * a * e / (v + q)
        used = a != 0
        P = np.where(used, np.minimum(1 / (0.999 / P + a * a / v), nets.memory.start), P)
        v = 0.99 * v + 0.01 * max(e * e, 1e-6)
        nets.learn(row[None], np.array([target]))
    np.testing.assert_allclose(nets.W[0][0, 0], W, rtol=1e-10)
    np.testing.assert_allclose(nets.P[0][0], P, rtol=1e-10)


@pytest.mark.parametrize("dense", [256, 6, 2])
def test_inputs_that_join_in_change_no_prediction_and_are_learnt(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one block and in two, also across the number from which on memories are diagonal."""
    monkeypatch.setattr(module, "DENSE", dense)
    x, y = data(60, 9, 2)
    found = []
    for parts in ((7,), (1, 6), (3, 4)):
        nets = GaussNewtonNets(2, (6,), 2, 0)
        nets.learn(x[:20, :2], y[:20])
        before = nets.predict(x[20:, :2])
        for part in parts:
            nets.add_inputs(part)
        np.testing.assert_allclose(nets.predict(np.pad(x[20:, :2], ((0, 0), (0, 7)))), before, rtol=1e-12)
        assert (nets.P[0].ndim == 2) == (dense < 9)
        nets.W[0][:, :, 3:10] = 0.1  # chance gives them their weights
        nets.learn(x[20:], y[20:])
        found.append(nets.predict(x))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-9)


def test_a_prediction_is_the_mean_of_the_nets_weighted_by_recent_losses() -> None:
    nets = GaussNewtonNets(3, (5,), 3, 0)
    x, y = data(50, 3, 3)
    losses = np.zeros(3)
    for i in range(50):
        p = [torch.softmax(nets.net(m)(torch.tensor(x[i : i + 1])), 1)[0].detach().numpy() for m in range(3)]
        weights = np.exp(-0.1 * (losses - losses.min()))
        wanted = np.average(p, axis=0, weights=weights)
        np.testing.assert_allclose(nets.predict(x[i : i + 1])[0], wanted, rtol=1e-9)
        shown = torch.softmax(nets.module(torch.tensor(x[i : i + 1])), 1)[0].detach()
        np.testing.assert_allclose(shown, wanted, rtol=1e-9)
        losses = 0.99 * losses - np.log([each[y[i]] for each in p])
        nets.learn(x[i : i + 1], y[i : i + 1])


def diverge(*_: Any) -> None:
    raise altmin.Diverged("the step")


def breaking(kind: Any) -> list[tuple[dict[str, float], Any]]:
    """Constant, duplicated, huge and suddenly shifted features; one class, or one value, for a thousand samples."""
    random = np.random.default_rng(0)
    found = []
    for t in range(2500):
        u, v = random.normal(size=2)
        shift = 1e3 if t > 1800 else 0.0
        x = {"one": 1.0, "u": u, "copy": u, "huge": 1e6 * v, "shifted": v + shift, "rare": 1e4 * (t % 500 == 0)}
        label = 0 if 500 <= t < 1500 else int(u * v > 0) + int(t > 2000 and u > 1)
        found.append((x, label if kind is OnlineClassifier else label * 10.0 ** (3 * (t > 1800))))
    return found


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("options", [{}, {"walk": 1e-3}, {"start": 1.0, "forget": 0.99}])
def test_numbers_stay_finite_on_a_stream_that_is_made_to_break_it(kind: Any, options: dict[str, float]) -> None:
    model, errors = kind(options=options, seed=0), []
    for x, y in breaking(kind):
        predicted = model.predict_one(x)
        errors.append(float(predicted != y) if kind is OnlineClassifier else abs(predicted - y))
        model.learn_one(x, y)
        net = model._net
        if net is not None:
            assert all(np.isfinite(each).all() for each in (*net.W, *net.P))
            assert all((np.linalg.eigvalsh(P) > -1e-9).all() for P in net.P) or len(errors) % 100
    assert np.mean(errors[1000:1500]) < 0.02  # of the class, or value, that has long been the only one


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("extra", [{}, {"d": 1.0, "colour": "red"}])
def test_a_sample_that_cannot_be_learnt_is_as_if_it_had_not_been(
    kind: Any, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it has new features and a new class; what comes later is learnt as by a model that has not met it."""
    model = kind(seed=0, hidden=(5,))
    x, y = data(40, 3, 3)
    rows = [dict(zip("abc", row, strict=True)) for row in x.tolist()]
    for row, label in zip(rows[:30], y[:30].tolist(), strict=True):
        model.learn_one(row, label)
    other = pickle.loads(pickle.dumps(model))
    with monkeypatch.context() as patched:
        patched.setattr(module, "gauss_newton_step", diverge)
        with pytest.raises(altmin.Diverged):
            model.learn_one({**rows[0], **extra}, 7)
    with pytest.raises(ValueError, match="weight is a finite number above 0"):
        model.learn_one({**rows[0], **extra}, 7, w=-1.0)
    assert model.feature_names == other.feature_names
    assert getattr(model, "classes", None) == getattr(other, "classes", None)
    for row, label in zip(rows[30:], y[30:].tolist(), strict=True):
        assert model.predict_one(row) == other.predict_one(row)
        for each in (model, other):
            each.learn_one({**row, "late": row["a"]}, label)
    np.testing.assert_array_equal(model._net.W[0][:, :, :5], other._net.W[0][:, :, :5])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_sample_of_weight_two_is_learnt_more(kind: Any) -> None:
    x, y = data(40, 3, 2)
    answers = []
    for weight in (0.5, 1.0, 2.0):
        model = kind(seed=0)
        for row, label in zip(x, y, strict=True):
            model.learn_one(dict(zip("abc", row, strict=True)), int(label))
        before = model.predict_proba_one({"a": 1.0})[1] if kind is OnlineClassifier else model.predict_one({"a": 1.0})
        model.learn_one({"a": 1.0}, 1, w=weight)
        after = model.predict_proba_one({"a": 1.0})[1] if kind is OnlineClassifier else model.predict_one({"a": 1.0})
        answers.append(after - before)
    assert 0 < answers[0] < answers[1] < answers[2]
    with pytest.raises(ValueError, match="weights are learnt by method='gauss-newton'"):
        kind(method="adam").learn_one({"a": 1.0}, 1, w=2.0)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_table_with_weights_is_its_rows(kind: Any) -> None:
    x, y = data(20, 3, 2)
    X, w = pd.DataFrame(x, columns=list("abc")), np.linspace(0.5, 2.0, 20)
    one, many = kind(seed=0), kind(seed=0)
    for i, row in enumerate(X.to_dict("records")):
        one.learn_one(row, int(y[i]), w=float(w[i]))
    many.learn_many(X, pd.Series(y), w)
    assert one.predict_one({"a": 0.3}) == many.predict_one({"a": 0.3})
    np.testing.assert_allclose(one._net.W[0], many._net.W[0], rtol=1e-12)


def test_texts_are_learnt_without_an_encoder() -> None:
    random, words = np.random.default_rng(0), {"cat": 0, "dog": 1, "ant": 0, "bee": 1}
    model, right = OnlineClassifier(seed=0), []
    for step in range(400):
        word = list(words)[random.integers(2) + 2 * (step >= 200)]
        right.append(model.predict_one({"word": word, "noise": random.normal()}) == words[word])
        model.learn_one({"word": word, "noise": random.normal()}, words[word])
    assert np.mean(right[150:200]) == np.mean(right[350:]) == 1.0
    assert set(model.feature_names) == {*(f"word={word}" for word in words), "noise"}


def test_thousands_of_rare_features_take_little_memory() -> None:
    model = OnlineClassifier(seed=0)
    random = np.random.default_rng(0)
    for t in range(1000):
        x = {f"f{2 * t}": 1.0, f"f{2 * t + 1}": 2.0, "u": random.normal()}
        model.learn_one(x, int(x["u"] > 0))
    assert len(model.feature_names) == 2001
    assert len(pickle.dumps(model)) < 20e6
    right = [model.predict_one({"u": u}) == int(u > 0) for u in random.normal(size=200)]
    assert np.mean(right) > 0.95


class Alarm:
    """At the 150th error."""

    drift_detected = False

    def update(self, error: float) -> None:
        assert error in (0.0, 1.0)
        self.seen = getattr(self, "seen", 0) + 1
        self.drift_detected = self.seen == 150


def test_a_detector_starts_learning_anew() -> None:
    """With the alarm the memories are those of the start again; a sample that cannot be learnt raises none."""
    x, y = data(160, 3, 2)
    model = OnlineClassifier(seed=0, detector=Alarm())
    traces = []
    for row, label in zip(x, y, strict=True):
        model.learn_one(dict(zip("abc", row, strict=True)), int(label))
        traces.append(math.nan if model._net is None else float(np.trace(model._net.P[0][0])))
    first = model._net.memory.start * len(model._net.P[0][0])
    jump = int(np.nanargmax(np.diff(traces)))
    assert traces[jump] < 0.9 * first < traces[jump + 1]
    assert not hasattr(model.detector, "seen")
    before, model._watch.seen = pickle.dumps(model._net), 149
    model._net.W[0] *= np.nan  # no step can be taken
    with pytest.raises(altmin.Diverged):
        model.learn_one({"a": 1.0}, 0)
    assert model._watch.seen == 149
    assert np.array_equal(model._net.P[0], pickle.loads(before).P[0])
    swapped = OnlineClassifier(seed=0, detector=drift.ADWIN())
    assert swapped.clone().detector is not swapped.detector
    for wrong in ({"detector": 3}, {"detector": drift.ADWIN(), "method": "adam"}):
        with pytest.raises(ValueError, match="detector is a drift detector of river"):
            OnlineClassifier(**wrong)


def test_what_only_other_methods_take_is_refused() -> None:
    with pytest.raises(ValueError, match="learns samples one by one, given batch_size=4"):
        OnlineClassifier(batch_size=4)
    with pytest.raises(ValueError, match="has no learning rate"):
        OnlineRegressor(lr=0.1)
    with pytest.raises(ValueError, match="members"):
        OnlineClassifier(members=0)
