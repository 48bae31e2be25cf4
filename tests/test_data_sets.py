"""The data sets by name: facts that need no files, what is said of missing and damaged ones, and images in the idx
format."""

import dataclasses
import gzip
import hashlib
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from memory import MEGABYTE, memory_below
from tiny_data import bomb, eleven_images, idx, tiny_fashion
from torch import Tensor

import altmin.data
from altmin.data.base import SPLITS, Dataset, Folder, megabytes
from altmin.data.damage import Damaged
from altmin.data.folders import data_folder
from altmin.data.idx_images import FASHION_MNIST, MNIST, MNIST_SEQUENTIAL


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


def test_describe_tells_where_the_files_are(tmp_path):
    assert altmin.data.describe("mnist", tmp_path).state == "embedded"
    described = altmin.data.describe("cifar10", tmp_path)
    assert (described.state, described.classes) == ("missing", 10)
    batches = tmp_path / "cifar10" / "cifar-10-batches-bin"
    assert described.where == str(batches)
    batches.mkdir(parents=True)
    (batches / "data_batch_3.bin").write_bytes(b"")
    assert altmin.data.describe("cifar10", tmp_path).state == "incomplete"


class Numbers(Dataset):
    """Two files, each sound if it holds a number."""

    def files(self, root: Path) -> list[Path]:
        return [root / "numbers" / "a", root / "numbers" / "b"]

    def check(self, path: Path) -> str:
        if not path.read_text().isdigit():
            raise Damaged(path, "it holds no number")
        return "a number"

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        return []

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        numbers = [float(path.read_text()) for path in self.files(root) if self.check(path)]
        return torch.tensor(numbers), torch.tensor([SPLITS.index(split)])


NUMBERS = Numbers(
    name="numbers", sample_shape=(), classes=1, splits={}, licence="none", url="somewhere", download_size=2_000_000
)


def test_a_data_set_loads_checks_and_describes_what_is_there(tmp_path: Path) -> None:
    assert NUMBERS.verify(tmp_path) == []
    first, second = NUMBERS.files(tmp_path)
    first.parent.mkdir()
    first.write_text("7")
    assert [check.state for check in NUMBERS.verify(tmp_path)] == ["sound", "missing"]
    assert NUMBERS.missing(tmp_path) == [second]
    second.write_text("x")
    sound, damaged = NUMBERS.verify(tmp_path)
    assert (sound.state, sound.detail) == ("sound", "a number")
    assert (damaged.state, NUMBERS.sound(second)) == ("damaged", False)
    assert damaged.detail.startswith("it holds no number; `altmin data fetch numbers` replaces it")
    with pytest.raises(Damaged, match=f"{second} is damaged: it holds no number; `altmin data fetch numbers` replaces"):
        NUMBERS.load("test", tmp_path)
    second.write_text("5")
    x, y = NUMBERS.load("test", tmp_path)
    assert (x.tolist(), y.tolist()) == ([7, 5], [2])
    assert NUMBERS.describe(tmp_path).state == "found"


@pytest.mark.parametrize("size, shown", [(1, "1 MB"), (30_878_645, "31 MB"), (2_816_407_858, "2.8 GB")])
def test_sizes_are_written_as_people_read_them(size: int, shown: str) -> None:
    assert megabytes(size) == shown


def test_facts_need_no_files():
    assert altmin.data.names() == [
        *(
            "mnist",
            "mnist-sequential",
            "mnist-permuted",
            "mnist-rows",
            "fashion-mnist",
            "cifar10",
            "higgs",
            "shakespeare",
        )
    ]
    facts = {name: altmin.data.dataset(name) for name in altmin.data.names()}
    shapes = [(1, 28, 28), (784, 1), (784, 1), (28, 28), (1, 28, 28), (3, 32, 32), (28,), (64,)]
    assert [facts[name].sample_shape for name in facts] == shapes
    assert [facts[name].classes for name in facts] == [10, 10, 10, 10, 10, 10, 2, 65]
    sizes = [70_000, 70_000, 70_000, 70_000, 70_000, 60_000, 11_000_000, 17_427]
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


MNIST_TRAINING = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]

MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """Every split of the embedded files; an empty data folder makes sure that it is those."""
    empty = tmp_path_factory.mktemp("empty")
    return {split: altmin.data.load("mnist", split, empty) for split in altmin.data.SPLITS}


def test_mnist_labels_are_those_published(mnist):
    for split, (x, y) in mnist.items():
        assert x.shape == (len(y), 1, 28, 28)
        assert len(y) == altmin.data.dataset("mnist").splits[split]
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
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


PUBLISHED = {  # of the unpacked files
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def test_the_files_with_these_sha256_are_those_with_the_published_md5(tmp_path):
    for path in MNIST.files(tmp_path):
        content = gzip.decompress(path.read_bytes())
        assert hashlib.md5(content).hexdigest() == PUBLISHED[path.stem]
        assert hashlib.sha256(content).hexdigest() == MNIST.checksums[path.stem]


def test_fetching_fashion_mnist_replaces_only_what_is_not_sound(server, tmp_path):
    labels, images = idx(np.array([5, 6], np.uint8)), idx(np.zeros((2, 28, 28), np.uint8))
    sums = {}
    for name in FASHION_MNIST.checksums:
        content = images if "idx3" in name else labels
        server.files[f"/{name}.gz"] = gzip.compress(content)
        sums[name] = hashlib.sha256(content).hexdigest()
    tiny = dataclasses.replace(
        FASHION_MNIST, url=server.url("/"), checksums=sums, splits={"train": 1, "validation": 1, "test": 2}
    )
    assert tiny.fetch(tmp_path) == tiny.files(tmp_path)
    assert tiny.fetch(tmp_path) == []
    assert len(server.asked) == 4
    spoilt = tiny.files(tmp_path)[2]
    spoilt.write_bytes(b"spoilt")
    assert tiny.fetch(tmp_path) == [spoilt]
    assert [check.state for check in tiny.verify(tmp_path)] == ["sound"] * 4


FASHION_PUBLISHED = {  # of the unpacked files
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}


def test_so_are_those_of_fashion_mnist() -> None:
    files = FASHION_MNIST.files(data_folder())
    if FASHION_MNIST.missing(data_folder()):
        pytest.skip("Fashion-MNIST is not there")
    for path in files:
        content = gzip.decompress(path.read_bytes())
        assert hashlib.md5(content).hexdigest() == FASHION_PUBLISHED[path.stem]
        assert hashlib.sha256(content).hexdigest() == FASHION_MNIST.checksums[path.stem]


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


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_early(fashion):
    tiny, root, _ = fashion
    path = root / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(bomb(bytes([0, 0, 8, 3]), 64 * MEGABYTE))
    with memory_below(2 * MEGABYTE), pytest.raises(Damaged, match="it has 6,289 or more bytes, expected 6,288"):
        tiny.load("train", root)
    assert not tiny.sound(path)


@pytest.mark.parametrize("split", altmin.data.SPLITS)
def test_step_t_is_pixel_t_in_the_order_of_reading(split: str, tmp_path: Path) -> None:
    images = tiny_fashion(tmp_path, eleven_images())
    sequences = dataclasses.replace(images, sample_shape=MNIST_SEQUENTIAL.sample_shape)
    x, y = images.load(split, tmp_path)
    steps, labels = sequences.load(split, tmp_path)
    assert torch.equal(labels, y)
    for row in (0, 7, 27):
        for column in (0, 13, 27):
            assert torch.equal(steps[:, 28 * row + column, 0], x[:, 0, row, column])


def test_it_shares_the_files_and_the_facts_of_mnist(tmp_path: Path) -> None:
    assert MNIST_SEQUENTIAL.files(tmp_path) == MNIST.files(tmp_path)
    assert (MNIST_SEQUENTIAL.splits, MNIST_SEQUENTIAL.classes) == (MNIST.splits, MNIST.classes)
    assert altmin.data.describe("mnist-sequential", tmp_path).state == "embedded"
    damaged = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    damaged.parent.mkdir()
    damaged.write_bytes(b"spoilt")
    with pytest.raises(Damaged, match="delete it: altmin embeds a sound copy"):
        altmin.data.load("mnist-sequential", "test", tmp_path)
