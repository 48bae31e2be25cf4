"""The data sets by name: facts that need no files, images in the idx format and in CIFAR's, and HIGGS."""

import dataclasses
import gzip
import hashlib
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_data import eleven_images, idx, tiny_fashion

import altmin.data
from altmin.data import Damaged, PartialData
from altmin.data.cifar10 import CIFAR10
from altmin.data.higgs import HIGGS, Higgs
from altmin.data.idx_images import MNIST, MNIST_SEQUENTIAL
from altmin.data.standardise import Scale


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("altmin.data.standardise._known", {})


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "higgs"])
def test_missing_files_are_named_with_the_command_that_gets_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        altmin.data.load(name, "train", tmp_path)
    message = str(caught.value)
    assert f"{tmp_path}{os.sep}{name}" in message
    assert f"`altmin data fetch {name} --data-dir {tmp_path}`" in message
    assert "by hand" in message


def test_describe_tells_where_the_files_are(tmp_path: Path) -> None:
    assert altmin.data.describe("mnist", tmp_path).state == "embedded"
    described = altmin.data.describe("cifar10", tmp_path)
    assert (described.state, described.classes) == ("missing", 10)
    batches = tmp_path / "cifar10" / "cifar-10-batches-bin"
    assert described.where == str(batches)
    batches.mkdir(parents=True)
    (batches / "data_batch_3.bin").write_bytes(b"")
    assert altmin.data.describe("cifar10", tmp_path).state == "incomplete"


SIZES = 50_000, 10_000, 10_000
FACTS: dict[str, Any] = {  # shape, classes, samples of the three splits
    "mnist": ((1, 28, 28), 10, SIZES),
    "mnist-sequential": ((784, 1), 10, SIZES),
    "mnist-permuted": ((784, 1), 10, SIZES),
    "mnist-rows": ((28, 28), 10, SIZES),
    "fashion-mnist": ((1, 28, 28), 10, SIZES),
    "cifar10": ((3, 32, 32), 10, (40_000, 10_000, 10_000)),
    "higgs": ((28,), 2, (10_000_000, 500_000, 500_000)),
    "shakespeare": ((64,), 65, (15_685, 871, 871)),
}


def test_facts_need_no_files() -> None:
    assert altmin.data.names() == list(FACTS)
    for name, facts in FACTS.items():
        known = altmin.data.dataset(name)
        assert (known.sample_shape, known.classes, tuple(known.splits.values())) == facts
        assert known.tokens == (name == "shakespeare")


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        altmin.data.load("mnits", "train")
    with pytest.raises(ValueError, match="did you mean 'validation'"):
        altmin.data.load("mnist", "valid")


# MNIST

COUNTS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],  # with those of the validation
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


def test_mnist_is_the_published_one_standardised_by_its_training_split(tmp_path: Path) -> None:
    mnist = {split: altmin.data.load("mnist", split, tmp_path) for split in altmin.data.SPLITS}
    for split, (x, y) in mnist.items():
        assert x.shape == (len(y), 1, 28, 28)
        assert len(y) == MNIST.splits[split]
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    both = torch.cat([mnist["train"][1], mnist["validation"][1]])
    assert both.bincount().tolist() == COUNTS["train"]
    assert mnist["test"][1].bincount().tolist() == COUNTS["test"]
    assert mnist["train"][1][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]  # the order of the files
    assert mnist["test"][1][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    x = mnist["train"][0].double()
    assert abs(x.mean()) < 1e-6
    assert abs(x.std(correction=0) - 1) < 1e-6
    # A black pixel is -mean / std: 0.1307 and 0.3081 are well known, of all 60,000 images.
    assert x.min().item() == pytest.approx(-0.1307 / 0.3081, rel=5e-3)
    for split in ("validation", "test"):
        assert mnist[split][0].min().item() == pytest.approx(x.min().item(), abs=1e-6)


@pytest.fixture
def fashion(tmp_path: Path) -> Any:
    """A data set in the form of Fashion-MNIST, the data folder with its files, and what is in them."""
    content = eleven_images()
    return tiny_fashion(tmp_path, content), tmp_path, content


@pytest.mark.parametrize("split, first, last", [("train", 0, 6), ("validation", 6, 8), ("test", 0, 3)])
def test_splits_are_cut_in_file_order_and_scaled_by_training(fashion: Any, split: str, first: int, last: int) -> None:
    tiny, root, content = fashion
    training = content["train-images-idx3-ubyte"]
    mean, std = training[:6].mean(), training[:6].std()
    images = content["t10k-images-idx3-ubyte"] if split == "test" else training
    x, y = tiny.load(split, root)
    assert y.tolist() == list(range(first, last))
    np.testing.assert_allclose(x[:, 0], (images[first:last] - mean) / std, rtol=1e-5, atol=1e-6)
    steps, _ = dataclasses.replace(tiny, sample_shape=MNIST_SEQUENTIAL.sample_shape).load(split, root)
    assert torch.equal(steps[:, 28 * 7 + 13, 0], x[:, 0, 7, 13])  # step t is pixel t in the order of reading


def test_changed_cut_and_missing_files_are_noticed(fashion: Any) -> None:
    tiny, root, content = fashion
    images, labels, test_images, test_labels = tiny.files(root)
    array = content["train-images-idx3-ubyte"].copy()
    array[3, 4, 5] ^= 1
    images.write_bytes(gzip.compress(idx(array)))
    labels.write_bytes(labels.read_bytes()[:-10])
    test_images.unlink()
    states = ["damaged", "damaged", "missing", "sound"]
    assert tiny.verify(root) == dict(zip((images, labels, test_images, test_labels), states, strict=True))
    with pytest.raises(FileNotFoundError):
        tiny.load("train", root)
    test_images.write_bytes(b"")
    with pytest.raises(Damaged, match=images.name):
        tiny.load("train", root)


def test_a_damaged_copy_in_the_data_folder_is_not_passed_over(tmp_path: Path) -> None:
    copy = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    copy.parent.mkdir()
    assert MNIST.embedded is not None
    copy.write_bytes((MNIST.embedded / copy.name).read_bytes()[:-100])
    with pytest.raises(Damaged, match="delete it"):
        altmin.data.load("mnist-sequential", "test", tmp_path)
    assert [*altmin.data.verify("mnist", tmp_path).values()] == ["sound"] * 3 + ["damaged"]


# CIFAR-10


@pytest.mark.parametrize("split, first, last", [("train", 0, 6), ("validation", 6, 8), ("test", 8, 12)])
def test_cifar_splits_channels_and_scale(tmp_path: Path, split: str, first: int, last: int) -> None:
    """Two training batches and a test batch of 4 records; image i of colour c has the value 10 i + c."""
    folder, sums = tmp_path / "cifar10" / "cifar-10-batches-bin", {}
    folder.mkdir(parents=True)
    for batch, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        record = b""
        for image in range(4 * batch, 4 * batch + 4):
            record += bytes([image]) + b"".join(bytes([10 * image + colour]) * 1024 for colour in range(3))
        (folder / f"{name}.bin").write_bytes(record)
        sums[name] = hashlib.md5(record).hexdigest()
    tiny = dataclasses.replace(CIFAR10, splits={"train": 6, "validation": 2, "test": 4}, checksums=sums)
    x, y = tiny.load(split, tmp_path)
    assert x.shape == (last - first, 3, 32, 32)
    assert y.tolist() == list(range(first, last))
    # The first six images of a colour are c, c + 10, ..., c + 50: mean c + 25, deviation 10 sqrt(35 / 12).
    expected = (np.arange(first, last) * 10 - 25) / (10 * np.sqrt(35 / 12))
    np.testing.assert_allclose(x.numpy(), np.broadcast_to(expected[:, None, None, None], x.shape), rtol=1e-6)


# HIGGS


@pytest.fixture
def table() -> np.ndarray:
    """Rows of a label and 28 features, of which the last never varies."""
    random = np.random.default_rng(1)
    rows = random.normal(3, 2, (100, 29)).astype(np.float32)
    rows[:, 0] = random.integers(0, 2, 100)
    rows[:, -1] = np.float32(0.1)
    return rows


def write(root: Path, rows: np.ndarray, name: str = "HIGGS-100.csv.gz") -> Path:
    """As UCI writes it: 18 digits and an exponent, with which a float32 survives."""
    path = root / "higgs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("".join(",".join(f"{v:.18e}" for v in row) + "\n" for row in rows).encode()))
    return path


def load(split: str, root: Path, known: Higgs = HIGGS) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialData)
        return known.load(split, root)


def test_a_partial_file_is_split_by_tenths_and_says_so(table: np.ndarray, tmp_path: Path) -> None:
    write(tmp_path, table)
    features = table[:, 1:].astype(np.float64)
    mean, std = features[:80].mean(0), features[:80].std(0)
    std[-1] = 1
    for split, part in (("train", slice(0, 80)), ("validation", slice(80, 90)), ("test", slice(90, 100))):
        with pytest.warns(PartialData, match="100 rows"):
            x, y = HIGGS.load(split, tmp_path)
        assert y.tolist() == table[part, 0].tolist()
        np.testing.assert_allclose(x, (features[part] - mean) / std, rtol=1e-5, atol=1e-6)
        assert not x[:, -1].any()
    described = HIGGS.describe(tmp_path)
    assert (described.state, described.splits) == ("partial", {"train": 80, "validation": 10, "test": 10})
    assert HIGGS.splits_of(Path("HIGGS-49525.csv.gz")) == {"train": 39_621, "validation": 4_952, "test": 4_952}


def test_the_complete_file_is_split_as_published_checked_and_preferred(table: np.ndarray, tmp_path: Path) -> None:
    write(tmp_path, table[:50], "HIGGS-50.csv.gz")
    path = write(tmp_path, table, "HIGGS.csv.gz")
    splits = {"train": 70, "validation": 20, "test": 10}
    known = dataclasses.replace(HIGGS, splits=splits, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert known.load("validation", tmp_path)[1].tolist() == table[70:90, 0].tolist()
    assert known.describe(tmp_path).state == "found"
    path.write_bytes(path.read_bytes() + b"more")
    assert known.verify(tmp_path) == {path: "damaged"}
    with pytest.raises(Damaged):
        known.load("test", tmp_path)


def test_a_text_that_changed_is_read_again_and_another_is_read_once(table: np.ndarray, tmp_path: Path) -> None:
    path = write(tmp_path, table)
    first = load("test", tmp_path)
    times = path.stat().st_mtime_ns
    path.write_bytes(b"x" * path.stat().st_size)
    os.utime(path, ns=(times, times))  # as it was, by size and time
    assert torch.equal(load("test", tmp_path)[0], first[0])
    table[:, 0] = 1 - table[:, 0]
    write(tmp_path, table)
    assert load("test", tmp_path)[1].tolist() == table[90:, 0].tolist()


@pytest.mark.parametrize("wrong", ["fewer rows", "a label", "infinite", "columns", "text", "cut"])
def test_a_text_that_is_not_that_table_is_refused(table: np.ndarray, tmp_path: Path, wrong: str) -> None:
    if wrong == "a label":
        table[7, 0] = 2
    if wrong == "infinite":
        table[7, 3] = np.inf
    rows = table[:99] if wrong == "fewer rows" else table[:, :28] if wrong == "columns" else table
    path = write(tmp_path, rows)
    if wrong == "text":
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"e", b"x", 1)))
    if wrong == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    for _ in range(2):
        with pytest.raises(Damaged, match="HIGGS-100"):
            load("train", tmp_path)


# Standardising


@pytest.mark.parametrize("chunk", [1, 7, 1 << 21])
def test_statistics_agree_with_numpy_however_they_are_chunked(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far from zero, where a sum of squares would lose all digits. 0.1 has no exact sum: a naive deviation comes out as
    1e-17 and blows the feature up."""
    monkeypatch.setattr("altmin.data.standardise.CHUNK", chunk)
    samples = np.random.default_rng(0).normal(1e4, 1, (31, 3, 2))
    samples[:, 2] = 0.1
    scale = Scale.of(samples)
    np.testing.assert_allclose(scale.mean, samples.mean(axis=(0, 2)), rtol=0, atol=1e-10)
    np.testing.assert_allclose(scale.std[:2], samples[:, :2].std(axis=(0, 2)), rtol=0, atol=1e-10)
    assert scale.std[2] == 1
    found = scale.apply(samples)
    assert not found[:, 2].any()
    np.testing.assert_allclose(found, (samples - scale.mean[:, None]) / scale.std[:, None], rtol=1e-6, atol=1e-6)
