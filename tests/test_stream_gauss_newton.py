"""Nets for single samples in numpy, against the method of the same name, and in the estimators."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("river")
pd = pytest.importorskip("pandas")

from altmin.methods.gauss_newton import GaussNewton  # noqa: E402
from altmin.stream import OnlineClassifier, OnlineRegressor  # noqa: E402
from altmin.stream.gauss_newton import DENSE, GaussNewtonNets  # noqa: E402

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
        nets.learn(x[i : i + 1], y[i], w[i])
        target = torch.tensor([y[i]]) if classes else torch.tensor([[y[i]]])
        for method in methods:
            method.step(torch.tensor(x[i : i + 1]), target, sample_weight=torch.tensor(w[i : i + 1]))
    for m, method in enumerate(methods):
        for p, q in zip(nets.net(m).parameters(), method.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_many_inputs_have_a_diagonal_memory() -> None:
    """By the formulas for one linear layer: P a_i = P_ii a_i, and inputs of zero change nothing of theirs."""
    inputs = DENSE + 1
    nets = GaussNewtonNets(inputs, (), 0, 0, members=1, floor=0.0)
    W, P, v = np.zeros(inputs + 1), np.full(inputs + 1, nets.memory.start), 1.0
    x, y = data(40, inputs, 0)
    x *= np.random.default_rng(2).random(x.shape) < 0.5
    for row, target in zip(x, y, strict=True):
        a = np.append(1.0, row)
        e, q = target - W @ a, a @ (P * a)
        W = W + P * a * e / (v + q)
        used = a != 0
        P = np.where(used, np.minimum(1 / (0.999 / P + a * a / v), nets.memory.start), P)
        v = 0.99 * v + 0.01 * max(e * e, 1e-6)
        nets.learn(row[None], target)
    np.testing.assert_allclose(nets.W[0][0, 0], W, rtol=1e-10)
    np.testing.assert_allclose(nets.P[0][0], P, rtol=1e-10)


@pytest.mark.parametrize("inputs", [2, DENSE - 3, DENSE + 1])
def test_inputs_that_join_in_change_no_prediction_and_are_learnt(inputs: int) -> None:
    """In one block and in two, also across the number from which on memories are diagonal."""
    x, y = data(60, inputs + 7, 2)
    found = []
    for parts in ((7,), (1, 6), (3, 4)):
        nets = GaussNewtonNets(inputs, (6,), 2, 0)
        for i in range(20):
            nets.learn(x[i : i + 1, :inputs], y[i])
        before = nets.predict(x[20:, :inputs])
        for part in parts:
            nets.add_inputs(part)
        after = nets.predict(np.pad(x[20:, :inputs], ((0, 0), (0, 7))))
        np.testing.assert_allclose(after, before, rtol=1e-9)
        assert (nets.P[0].ndim == 2) == (inputs + 7 > DENSE)
        nets.W[0][:, :, 1 + inputs : 8 + inputs] = 0.1  # chance gives them their weights
        for i in range(20, 60):
            nets.learn(x[i : i + 1], y[i])
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
        nets.learn(x[i : i + 1], y[i])


def breaking(kind: Any) -> list[tuple[dict[str, float], Any]]:
    """Constant, duplicated, huge and suddenly shifted features; one class, or one value, for a thousand samples."""
    random = np.random.default_rng(0)
    found = []
    for t in range(1200):
        u, v = random.normal(size=2)
        shift = 1e3 if t > 900 else 0.0
        x = {"one": 1.0, "u": u, "copy": u, "huge": 1e6 * v, "shifted": v + shift, "rare": 1e4 * (t % 250 == 0)}
        label = 0 if 300 <= t < 800 else int(u * v > 0) + int(t > 1000 and u > 1)
        found.append((x, label if kind is OnlineClassifier else label * 10.0 ** (3 * (t > 900))))
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
    assert np.mean(errors[550:800]) < 0.02  # of the class, or value, that has long been the only one


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


def test_learning_anew_keeps_the_weights_and_makes_steps_long_again() -> None:
    x, y = data(150, 3, 2)
    model = OnlineClassifier(seed=0)
    for row, label in zip(x, y, strict=True):
        model.learn_one(dict(zip("abc", row, strict=True)), int(label))
    net = model._net
    first, W = net.memory.start * len(net.P[0][0]), net.W[0].copy()
    assert np.trace(net.P[0][0]) < 0.9 * first
    model.relearn()
    assert np.trace(net.P[0][0]) == pytest.approx(first)
    np.testing.assert_array_equal(net.W[0], W)
