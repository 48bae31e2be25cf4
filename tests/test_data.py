"""The data sets by their published facts, and what every one of them shares."""

import os
import stat
import time
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import altmin.data
from altmin.data.atomic import replacing
from altmin.data.folders import cache_folder, data_folder, prepare, writable
from altmin.data.mnist import MNIST
from altmin.data.standardise import Scale

# Labels 0 to 9 in the training file of 60,000, and in the test file.
MNIST_TRAINING = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """Every split of the embedded files; an empty data folder makes sure that it is those."""
    empty = tmp_path_factory.mktemp("empty")
    return {split: altmin.data.load("mnist", split, empty) for split in altmin.data.SPLITS}


def test_mnist_shapes_and_types(mnist):
    for split, (x, y) in mnist.items():
        assert x.shape == (altmin.data.dataset("mnist").splits[split], 1, 28, 28)
        assert y.shape == x.shape[:1]
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


def test_mnist_labels_are_those_published(mnist):
    both = torch.cat([mnist["train"][1], mnist["validation"][1]])
    assert both.bincount().tolist() == MNIST_TRAINING
    assert mnist["test"][1].bincount().tolist() == MNIST_TEST


def test_mnist_splits_keep_the_order_of_the_files(mnist):
    assert mnist["train"][1][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist["test"][1][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_mnist_is_standardised_by_the_training_split_alone(mnist):
    x = mnist["train"][0].double()
    assert abs(x.mean()) < 1e-6
    assert abs(x.std(correction=0) - 1) < 1e-6
    # A black pixel is -mean / std: 0.1307 and 0.3081 are well known, of all 60,000 images.
    black = x.min().item()
    assert black == pytest.approx(-0.1307 / 0.3081, rel=5e-3)
    for split in ("validation", "test"):
        assert mnist[split][0].min().item() == pytest.approx(black, abs=1e-6)
        assert abs(mnist[split][0].double().mean()) > 1e-3


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


def test_facts_need_no_files():
    assert altmin.data.names() == ["mnist", "mnist-sequential", "fashion-mnist", "cifar10", "higgs"]
    facts = {name: altmin.data.dataset(name) for name in altmin.data.names()}
    assert [facts[name].sample_shape for name in facts] == [(1, 28, 28), (784, 1), (1, 28, 28), (3, 32, 32), (28,)]
    assert [facts[name].classes for name in facts] == [10, 10, 10, 10, 2]
    assert [sum(facts[name].splits.values()) for name in facts] == [70_000, 70_000, 70_000, 60_000, 11_000_000]
    assert list(facts["higgs"].splits.values()) == [10_000_000, 500_000, 500_000]
    assert list(facts["cifar10"].splits.values()) == [40_000, 10_000, 10_000]


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown data set 'mnits'; did you mean 'mnist'"):
        altmin.data.load("mnits", "train")
    with pytest.raises(ValueError, match="unknown split 'valid'; did you mean 'validation'"):
        altmin.data.load("mnist", "valid")


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "higgs"])
def test_missing_files_are_named_and_not_downloaded(name, tmp_path, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("downloaded by surprise"))
    with pytest.raises(FileNotFoundError) as caught:
        altmin.data.load(name, "train", tmp_path)
    message = str(caught.value)
    assert f"{tmp_path}{os.sep}{name}" in message
    assert f"`altmin data fetch {name} --data-dir {tmp_path}`" in message
    assert altmin.data.dataset(name).size in message
    assert "by hand" in message
    assert "\n" not in message
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"`altmin data fetch {name}`"):
        altmin.data.load(name, "train")


def test_a_damaged_copy_in_the_data_folder_is_not_passed_over(tmp_path):
    (tmp_path / "mnist").mkdir()
    copy = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    copy.write_bytes((MNIST.embedded / copy.name).read_bytes()[:-100])
    with pytest.raises(altmin.data.Damaged, match="cut short; delete it: altmin embeds a sound copy") as caught:
        altmin.data.load("mnist", "test", tmp_path)
    assert caught.value.path == copy
    assert [check.state for check in altmin.data.verify("mnist", tmp_path)] == ["sound"] * 3 + ["damaged"]


def test_describe_tells_where_the_files_are(tmp_path):
    assert altmin.data.describe("mnist", tmp_path).state == "embedded"
    described = altmin.data.describe("cifar10", tmp_path)
    assert (described.state, described.classes) == ("missing", 10)
    batches = tmp_path / "cifar10" / "cifar-10-batches-bin"
    assert described.where == str(batches)
    batches.mkdir(parents=True)
    (batches / "data_batch_3.bin").write_bytes(b"")
    assert altmin.data.describe("cifar10", tmp_path).state == "incomplete"


def test_data_folder_is_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ALTMIN_DATA", raising=False)
    assert data_folder() == cache_folder() == tmp_path / "cache" / "altmin"
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path / "env"))
    assert data_folder() == tmp_path / "env"
    assert data_folder(tmp_path) == data_folder(str(tmp_path)) == tmp_path
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "altmin"


def test_a_folder_without_write_bits_is_left_alone_even_by_root(tmp_path):
    assert writable(tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    assert not writable(locked)
    with pytest.raises(PermissionError, match="locked, which is read-only; choose another"):
        prepare(locked / "new" / "folder")
    assert not (locked / "new").exists()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(target) as file:
        file.writelines([b"half", None])
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    with replacing(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_what_a_killed_writer_left_is_cleared_but_not_what_is_being_written(tmp_path):
    abandoned, active = tmp_path / ".file.a.tmp", tmp_path / ".file.b.tmp"
    for left in (abandoned, active):
        left.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 7200,) * 2)
    with replacing(tmp_path / "file"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.b.tmp", "file"]


@settings(deadline=None, max_examples=60)
@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(1, 5)),
        elements=st.floats(-1000, 1000, width=32).map(lambda value: np.float32(round(value, 2))),
    ),
    st.integers(1, 64),
)
def test_statistics_agree_with_numpy_however_they_are_chunked(samples, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("altmin.data.standardise.CHUNK", chunk)
        scale = Scale.of(samples)
        result = scale.apply(samples)
    wide = samples.astype(np.float64)
    mean, std = wide.mean(axis=(0, 2)), wide.std(axis=(0, 2))
    constant = np.ptp(samples, axis=(0, 2)) == 0
    assert np.allclose(scale.mean, mean, atol=1e-9)
    assert np.all(scale.std[constant] == 1)
    assert np.allclose(scale.std[~constant], std[~constant], rtol=1e-4)
    expected = (wide - scale.mean[:, None]) / scale.std[:, None]
    assert np.allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_a_constant_feature_becomes_zero_and_not_noise():
    """0.1 has no exact sum: a naive deviation comes out as 1e-17 and blows the feature up."""
    samples = np.full((1000, 2), 0.1, np.float32)
    samples[:, 1] = np.arange(1000)
    result = Scale.of(samples).apply(samples)
    assert torch.equal(result[:, 0], torch.zeros(1000))
    assert result[:, 1].std(correction=0) == pytest.approx(1)
