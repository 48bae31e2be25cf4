"""MNIST, which comes with the package: its published facts."""

import gzip
import hashlib

import pytest
import torch

import altmin.data
from altmin.data.mnist import MNIST

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
        assert hashlib.sha256(content).hexdigest() == MNIST.sha256[path.stem]
