"""The data sets by name: facts without files, and names that are mistyped."""

import os
import warnings

import pytest

import altmin.data


def test_facts_need_no_files():
    assert altmin.data.names() == ["mnist", "mnist-sequential", "fashion-mnist", "cifar10", "higgs", "shakespeare"]
    facts = {name: altmin.data.dataset(name) for name in altmin.data.names()}
    shapes = [(1, 28, 28), (784, 1), (1, 28, 28), (3, 32, 32), (28,), (64,)]
    assert [facts[name].sample_shape for name in facts] == shapes
    assert [facts[name].classes for name in facts] == [10, 10, 10, 10, 2, 65]
    sizes = [70_000, 70_000, 70_000, 60_000, 11_000_000, 17_427]
    assert [sum(facts[name].splits.values()) for name in facts] == sizes
    assert [name for name in facts if facts[name].tokens] == ["shakespeare"]
    assert list(facts["higgs"].splits.values()) == [10_000_000, 500_000, 500_000]
    assert list(facts["cifar10"].splits.values()) == [40_000, 10_000, 10_000]


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown data set 'mnits'; did you mean 'mnist'"):
        altmin.data.load("mnits", "train")
    with pytest.raises(ValueError, match="unknown split 'valid'; did you mean 'validation'"):
        altmin.data.load("mnist", "valid")


def test_the_other_sets_are_standardised_too_where_they_are_at_hand(monkeypatch, tmp_path):
    if not os.environ.get("ALTMIN_DATA"):
        pytest.skip("$ALTMIN_DATA is not set: no data folder to read")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tested = 0
    for name in ("fashion-mnist", "cifar10", "higgs"):
        described = altmin.data.describe(name)
        if described.state not in ("found", "partial") or described.splits["train"] > 100_000:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", altmin.data.PartialData)
            x, y = altmin.data.load(name, "train")
        assert x.shape == (described.splits["train"], *described.sample_shape)
        across = [axis for axis in range(x.ndim) if axis != 1]
        assert x.double().mean(across).abs().max() < 1e-5
        assert (x.double().std(across, correction=0) - 1).abs().max() < 1e-5
        assert y.unique().tolist() == list(range(described.classes))
        tested += 1
    if not tested:
        pytest.skip("$ALTMIN_DATA holds none of fashion-mnist, cifar10, higgs")
