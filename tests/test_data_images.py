"""Image files, good and bad: the idx reader and the CIFAR-10 batches, on tiny files made here."""

import dataclasses
import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from altmin.data import Damaged
from altmin.data.cifar10 import CIFAR10
from altmin.data.fashion_mnist import FASHION_MNIST
from altmin.data.idx import parse_idx, read_idx

SPLITS = {"train": 6, "validation": 2, "test": 3}
SOMEWHERE = Path("somewhere")


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def md5(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def fashion(tmp_path):
    """A data set in the form of Fashion-MNIST with 8 + 3 images, its files, and what is in them."""
    random = np.random.default_rng(0)
    content = {
        "train-images-idx3-ubyte": random.integers(0, 256, (8, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.arange(8, dtype=np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (3, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(3, dtype=np.uint8),
    }
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for name, array in content.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    sums = {name: md5(idx(array)) for name, array in content.items()}
    return dataclasses.replace(FASHION_MNIST, splits=SPLITS, md5=sums), tmp_path, content


@pytest.mark.parametrize("split, first, last", [("train", 0, 6), ("validation", 6, 8), ("test", 0, 3)])
def test_splits_are_cut_in_file_order_and_scaled_by_training(fashion, split, first, last, monkeypatch):
    monkeypatch.setattr("altmin.data.standardise._known", {})  # each split on its own, none helped by another
    tiny, root, content = fashion
    training = content["train-images-idx3-ubyte"]
    mean, std = training[:6].mean(), training[:6].std()
    images = content["t10k-images-idx3-ubyte"] if split == "test" else training
    x, y = tiny.load(split, root)
    assert y.tolist() == list(range(first, last))
    np.testing.assert_allclose(x[:, 0], (images[first:last] - mean) / std, rtol=1e-5, atol=1e-6)


def test_a_changed_byte_is_noticed(fashion):
    tiny, root, content = fashion
    path = root / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    array = content["train-images-idx3-ubyte"].copy()
    array[3, 4, 5] ^= 1
    path.write_bytes(gzip.compress(idx(array)))
    with pytest.raises(Damaged, match=r"md5 .* expected .*`altmin data fetch fashion-mnist` replaces it") as caught:
        tiny.load("train", root)
    assert str(path) in str(caught.value)


def test_verify_tells_sound_damaged_and_missing_apart(fashion):
    tiny, root, _ = fashion
    folder = root / "fashion-mnist"
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(b"")
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    assert [check.state for check in tiny.verify(root)] == ["sound", "damaged", "missing", "sound"]
    assert tiny.verify(root / "elsewhere") == []


@pytest.mark.parametrize(
    "content, what",
    [
        (b"", "it starts with nothing"),
        (gzip.compress(b"\x00\x00\x08\x03" + b"\0" * 8), "it ends within its header, after 12 of 16 bytes"),
        (gzip.compress(b"\x00\x00\x0d\x03" + b"\0" * 12), "it starts with 00000d03, .* with 00000803"),
        (gzip.compress(idx(np.zeros((2, 3), np.uint8))), "it starts with 00000802"),
        (gzip.compress(idx(np.zeros((2, 3, 4), np.uint8))[:-1]), "announces 2 x 3 x 4 bytes and holds 23"),
        (gzip.compress(idx(np.zeros((2, 3, 4), np.uint8)) + b"\0"), "announces 2 x 3 x 4 bytes and holds 25"),
        (gzip.compress(idx(np.zeros((20, 30, 40), np.uint8)))[:-10], "cut short"),
        (b"<html>Not found</html>", "not a sound gzip file"),
        (gzip.compress(b"\x00\x00\x08\x03")[:-8] + b"\1" * 8, "not a sound gzip file"),
    ],
)
def test_unsound_idx_files_are_named_with_what_is_wrong(content, what, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(Damaged, match=what) as caught:
        read_idx(path, 3)
    assert caught.value.path == path


images = arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6))


@given(images)
def test_idx_gives_back_what_was_written(array):
    parsed = parse_idx(idx(array), SOMEWHERE, array.ndim)
    assert parsed.shape == array.shape
    assert np.array_equal(parsed, array)


@given(images, st.data())
def test_idx_accepts_no_part_of_a_file(array, data):
    content = idx(array)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(Damaged, match="somewhere is damaged"):
        parse_idx(content[:cut], SOMEWHERE, array.ndim)


@given(st.binary(max_size=64))
def test_idx_never_fails_but_by_damaged(content):
    try:
        array = parse_idx(content, SOMEWHERE, 1)
    except Damaged:
        return
    assert idx(array) == content


@pytest.fixture
def cifar(tmp_path):
    """Two training batches and a test batch of 4 records; image i of colour c has the value 10 i + c."""
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    sums = {}
    for batch, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        record = b""
        for image in range(4 * batch, 4 * batch + 4):
            record += bytes([image]) + b"".join(bytes([10 * image + colour]) * 1024 for colour in range(3))
        (folder / f"{name}.bin").write_bytes(record)
        sums[name] = md5(record)
    splits = {"train": 6, "validation": 2, "test": 4}
    return dataclasses.replace(CIFAR10, splits=splits, md5=sums, batch=4), tmp_path


@pytest.mark.parametrize("split, first, last", [("train", 0, 6), ("validation", 6, 8), ("test", 8, 12)])
def test_cifar_splits_channels_and_scale(cifar, split, first, last, monkeypatch):
    monkeypatch.setattr("altmin.data.standardise._known", {})
    tiny, root = cifar
    x, y = tiny.load(split, root)
    assert x.shape == (last - first, 3, 32, 32)
    assert y.tolist() == list(range(first, last))
    # The first six images of a colour are c, c + 10, ..., c + 50: mean c + 25, deviation 10 sqrt(35 / 12).
    expected = (np.arange(first, last) * 10 - 25) / (10 * np.sqrt(35 / 12))
    np.testing.assert_allclose(x.numpy(), np.broadcast_to(expected[:, None, None, None], x.shape), rtol=1e-6)


def test_cifar_batches_must_have_their_size_and_checksum(cifar):
    tiny, root = cifar
    path = tiny.files(root)[1]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(Damaged, match=r"data_batch_2\.bin is damaged: it has 12,291 bytes, expected 12,292"):
        tiny.load("validation", root)
    path.write_bytes(b"\7" + content[1:])
    with pytest.raises(Damaged, match=r"data_batch_2\.bin is damaged: its content has md5"):
        tiny.load("validation", root)
