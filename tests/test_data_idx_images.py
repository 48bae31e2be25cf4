"""Images in four idx files: their splits and scale, and files that are damaged, missing or embedded."""

import gzip

import numpy as np
import pytest
from memory import MEGABYTE, memory_below
from tiny_data import bomb, eleven_images, idx, tiny_fashion

import altmin.data
from altmin.data import Damaged
from altmin.data.mnist import MNIST


@pytest.fixture
def fashion(tmp_path):
    """A data set in the form of Fashion-MNIST, the data folder with its files, and what is in them."""
    content = eleven_images()
    return tiny_fashion(tmp_path, content), tmp_path, content


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
    with pytest.raises(Damaged, match=r"sha256 .* expected .*`altmin data fetch fashion-mnist` replaces it") as caught:
        tiny.load("train", root)
    assert str(path) in str(caught.value)


def test_verify_tells_sound_damaged_and_missing_apart(fashion):
    tiny, root, _ = fashion
    folder = root / "fashion-mnist"
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(b"")
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    assert [check.state for check in tiny.verify(root)] == ["sound", "damaged", "missing", "sound"]
    assert tiny.verify(root / "elsewhere") == []


def test_a_damaged_copy_in_the_data_folder_is_not_passed_over(tmp_path):
    (tmp_path / "mnist").mkdir()
    copy = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    copy.write_bytes((MNIST.embedded / copy.name).read_bytes()[:-100])
    with pytest.raises(altmin.data.Damaged, match="cut short; delete it: altmin embeds a sound copy") as caught:
        altmin.data.load("mnist", "test", tmp_path)
    assert caught.value.path == copy
    assert [check.state for check in altmin.data.verify("mnist", tmp_path)] == ["sound"] * 3 + ["damaged"]


@pytest.mark.parametrize(
    "start, what",
    [
        (bytes([0, 0, 8, 3, 0, 0, 0, 8, 0, 0, 0, 28, 0, 0, 0, 28]), "announces 8 x 28 x 28 bytes and holds more"),
        (bytes([0, 0, 8, 3, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0]), "announces 256 x 65536 x 65536 .* at most 6,272"),
        (b"", "it starts with 00000000"),
    ],
)
def test_a_small_file_that_unpacks_to_a_large_one_is_refused_early(fashion, start, what):
    tiny, root, _ = fashion
    path = root / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(bomb(start, 64 * MEGABYTE))
    with memory_below(2 * MEGABYTE), pytest.raises(Damaged, match=what):
        tiny.load("train", root)
    assert not tiny.sound(path)


def test_labels_have_a_limit_of_their_own(fashion):
    tiny, root, _ = fashion
    (root / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros(4, np.uint8))))
    with pytest.raises(Damaged, match="announces 4 bytes, expected at most 3"):
        tiny.load("test", root)
