"""Images read pixel by pixel: the same values, labels and files, in the order of reading."""

import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_data import eleven_images, tiny_fashion

import altmin.data
from altmin.data import Damaged
from altmin.data.mnist import MNIST
from altmin.data.pixel_sequences import MNIST_SEQUENTIAL


@pytest.mark.parametrize("split", altmin.data.SPLITS)
def test_step_t_is_pixel_t_in_the_order_of_reading(split: str, tmp_path: Path) -> None:
    images = tiny_fashion(tmp_path, eleven_images())
    sequences = dataclasses.replace(MNIST_SEQUENTIAL, images=images, sha256=images.sha256, splits=images.splits)
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
