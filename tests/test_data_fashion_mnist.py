"""Fashion-MNIST: its published facts, and fetching it."""

import dataclasses
import gzip
import hashlib
from collections.abc import Iterator

import pytest
from file_server import Server, running

from altmin.data.fashion_mnist import FASHION_MNIST


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as each:
        yield each


def test_fetching_fashion_mnist_replaces_only_what_is_not_sound(server, tmp_path):
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6])
    images = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9])
    sums = {}
    for name in FASHION_MNIST.md5:
        content = images if "idx3" in name else labels
        server.files[f"/{name}.gz"] = gzip.compress(content)
        sums[name] = hashlib.md5(content).hexdigest()
    tiny = dataclasses.replace(FASHION_MNIST, url=server.url("/"), md5=sums)
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
