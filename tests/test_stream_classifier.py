"""Classes that join in, probabilities, and streams that are learnt."""

import numpy as np
import pytest
import torch

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import datasets, evaluate, metrics, preprocessing  # noqa: E402

from altmin.stream import OnlineClassifier  # noqa: E402


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


def learnt(model: OnlineClassifier, samples: list[tuple[dict[str, float], str]]) -> OnlineClassifier:
    for x, y in samples:
        model.learn_one(x, y)
    return model


def test_before_two_classes_were_seen_nothing_is_computed() -> None:
    model = OnlineClassifier(seed=0)
    x = {"u": 1.0}
    assert (model.predict_proba_one(x), model.predict_one(x), model.network) == ({}, None, None)
    model.learn_one(x, "a")
    assert (model.predict_proba_one(x), model.predict_one(x), model.network) == ({"a": 1.0}, "a", None)


@pytest.mark.parametrize("method", ["am-adam", "am-mem-fitted", "adam"])
def test_a_new_class_leaves_the_ratios_of_the_others_as_they_were_and_is_learnt(method: str) -> None:
    model = learnt(OnlineClassifier((8,), method, seed=0), blobs(150, "ab"))
    x = {"u": 2.0, "v": 1.0}
    before = model.predict_proba_one(x)
    assert set(before) == {"a", "b"}
    model._targets(["c"])  # the class joins, and no step is taken
    after = model.predict_proba_one(x)
    assert after["a"] / after["b"] == pytest.approx(before["a"] / before["b"], rel=1e-9)
    assert sum(after.values()) == pytest.approx(1.0)
    learnt(model, blobs(250, "abc", seed=1))
    assert model.classes == ["a", "b", "c"] or model.classes == ["b", "a", "c"]
    right = [model.predict_one(x) == y for x, y in blobs(200, "abc", seed=2)]
    assert np.mean(right) > 0.95


def test_probabilities_are_the_softmax_of_the_networks_output() -> None:
    model = learnt(OnlineClassifier((8,), seed=0, standardise=False), blobs(30, "abc"))
    x = {"v": -1.0, "u": 3.0}
    output = model.network(torch.tensor([[x[name] for name in model.feature_names]], dtype=torch.float64))
    e = np.exp(output.detach().numpy()[0])
    assert model.predict_proba_one(x) == pytest.approx(dict(zip(model.classes, e / e.sum(), strict=True)))
    assert model.predict_one(x) == model.classes[int(e.argmax())]


def test_many_are_predicted_as_one_is() -> None:
    model = learnt(OnlineClassifier((8,), seed=0), blobs(30, "abc"))
    samples = [x for x, _ in blobs(6, "abc", seed=4)]
    X = pd.DataFrame(samples, index=range(10, 16))
    many = model.predict_proba_many(X)
    assert list(many.index) == list(X.index) == list(model.predict_many(X).index)
    for x, row in zip(samples, many.to_dict("records"), strict=True):
        assert row == pytest.approx(model.predict_proba_one(x), rel=1e-9)
    assert model.predict_many(X).tolist() == [model.predict_one(x) for x in samples]
    assert OnlineClassifier().predict_many(X).tolist() == [None] * 6


def test_true_and_false_of_numpy_are_those_of_python() -> None:
    model = OnlineClassifier((8,), seed=0)
    for y in (True, np.bool_(False), np.bool_(True), False):
        model.learn_one({"u": float(y)}, y)
    assert model.classes == [True, False]


def test_labels_that_are_not_found_in_a_dict_are_refused() -> None:
    for wrong in (None, float("nan"), [1], np.zeros(2), torch.zeros(2), torch.tensor(1.0)):
        with pytest.raises(ValueError, match="a label is a value that can be found in a dict"):
            OnlineClassifier().learn_one({"u": 1.0}, wrong)


def test_words_that_appear_later_are_learnt_in_a_pipeline() -> None:
    """Every word has a class; the second half of the stream has other words."""
    random, words = np.random.default_rng(0), {"cat": 0, "dog": 1, "ant": 0, "bee": 1}
    pipeline = preprocessing.OneHotEncoder() | OnlineClassifier((16,), seed=0, absent="zero")
    right = []
    for step in range(400):
        word = list(words)[random.integers(2) + 2 * (step >= 200)]
        right.append(pipeline.predict_one({"word": word}) == words[word])
        pipeline.learn_one({"word": word}, words[word])
    assert np.mean(right[150:200]) == np.mean(right[350:]) == 1.0


@pytest.mark.parametrize("method", ["am-adam", "am-mem-fitted"])
def test_a_real_stream_is_learnt(method: str) -> None:
    accuracy = evaluate.progressive_val_score(
        datasets.Phishing().take(400), OnlineClassifier(method=method, seed=0), metrics.Accuracy()
    )
    assert accuracy.get() > 0.8
