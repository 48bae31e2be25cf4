"""Fashion-MNIST: its published facts, and fetching it."""

import dataclasses
import gzip
import hashlib
from collections.abc import Iterator

import pytest
from file_server import Server, running

from altmin.data.fashion_mnist import FASHION_MNIST
from altmin.data.folders import data_folder


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as each:
        yield each


def test_fetching_fashion_mnist_replaces_only_what_is_not_sound(server, tmp_path):
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6])
    images = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9])
    sums = {}
    for name in FASHION_MNIST.sha256:
        content = images if "idx3" in name else labels
        server.files[f"/{name}.gz"] = gzip.compress(content)
        sums[name] = hashlib.sha256(content).hexdigest()
    tiny = dataclasses.replace(FASHION_MNIST, url=server.url("/"), sha256=sums)
    assert tiny.fetch(tmp_path) == tiny.files(tmp_path)
    assert tiny.fetch(tmp_path) == []
    assert len(server.asked) == 4
    spoilt = tiny.files(tmp_path)[2]
    spoilt.write_bytes(b"spoilt")
    assert tiny.fetch(tmp_path) == [spoilt]
    assert [check.state for check in tiny.verify(tmp_path)] == ["sound"] * 4


def test_its_facts_are_those_published() -> None:
    assert (FASHION_MNIST.sample_shape, FASHION_MNIST.classes) == ((1, 28, 28), 10)
    assert FASHION_MNIST.splits == {"train": 50_000, "validation": 10_000, "test": 10_000}
    assert FASHION_MNIST.size == "31 MB"
    assert FASHION_MNIST.embedded is None
    assert FASHION_MNIST.url.startswith("https://")


PUBLISHED = {  # of the unpacked files
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}


def test_the_files_with_these_sha256_are_those_with_the_published_md5() -> None:
    files = FASHION_MNIST.files(data_folder())
    if FASHION_MNIST.missing(data_folder()):
        pytest.skip("Fashion-MNIST is not there")
    for path in files:
        content = gzip.decompress(path.read_bytes())
        assert hashlib.md5(content).hexdigest() == PUBLISHED[path.stem]
        assert hashlib.sha256(content).hexdigest() == FASHION_MNIST.sha256[path.stem]
