"""Writing shards: the same files whatever the batches, in bounded memory, and no index unless all is written."""

import json

import numpy as np
import pytest
import torch
from memory import MEGABYTE, memory_below

from altmin.data import Shards, block_order, shards, write_shards

pytest.importorskip("pyarrow")


def table(rows=100, features=(3,)):
    random = np.random.default_rng(0)
    return random.normal(size=(rows, *features)).astype(np.float32), random.integers(0, 5, rows)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("cuts", [(), (50,), (1, 2, 3), (30, 30, 99)])
def test_files_do_not_depend_on_how_the_rows_come(tmp_path, cuts):
    x, y = table()
    write_shards(tmp_path / "whole", (x, y), rows_per_shard=30)
    parts = zip(np.split(x, cuts), np.split(torch.from_numpy(y).numpy(), cuts), strict=True)
    write_shards(tmp_path / "parts", ((torch.from_numpy(a), b) for a, b in parts), rows_per_shard=30)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    index = json.loads((tmp_path / "whole/index.json").read_text())
    assert [each["rows"] for each in index["shards"]] == [30, 30, 30, 10]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint8", "int32"])
def test_types_and_shapes_come_back(tmp_path, dtype):
    x = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(dtype)
    y = np.array([[0.5, 1], [2, 3]])
    read = write_shards(tmp_path, (x, y))
    assert (read.sample_shape, read.target_shape, read.dtype) == ((3, 4), (2,), x.dtype)
    a, b = read.rows([1, 0])
    assert a.numpy().dtype == x.dtype
    assert np.array_equal(a.numpy(), x[::-1])
    assert np.array_equal(b.numpy(), y[::-1])


def test_files_are_plain_arrow_that_others_read(tmp_path):
    import pyarrow.ipc

    x, y = table()
    write_shards(tmp_path, (x, y), rows_per_shard=60)
    found = pyarrow.ipc.open_file(str(tmp_path / "shard-00001.arrow")).read_all().to_pydict()
    assert np.array_equal(np.array(found["x"], np.float32), x[60:])
    assert np.array_equal(np.array(found["y"])[:, 0], y[60:])


def test_memory_is_that_of_a_shard_and_of_a_window(tmp_path, monkeypatch):
    """64 batches of 4 MB go into shards of 8 MB; with windows of 8 blocks, 16 are mapped at most where a batch has rows
    of two windows, and the kernel maps up to 2 MB more around each."""
    monkeypatch.setattr(shards, "WINDOW", 8)
    monkeypatch.setattr(block_order.BlockOrder.__init__, "__defaults__", (4096, 8))
    write_shards(tmp_path / "first", table(5))
    batches = ((np.ones((32768, 32), np.float32), np.zeros(32768, np.int64)) for _ in range(64))
    with memory_below(80 * MEGABYTE):
        write_shards(tmp_path / "all", batches, rows_per_shard=65536)
    read = Shards(tmp_path / "all")
    with memory_below(80 * MEGABYTE):
        assert sum(len(x) for x, _ in read.batches(5000)) == 64 * 32768
    with memory_below(80 * MEGABYTE):
        assert read.statistics().mean.tolist() == [1] * 32


def test_a_failure_in_the_middle_leaves_no_index_and_can_be_repaired(tmp_path):
    x, y = table()

    def breaking():
        yield x[:50], y[:50]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(tmp_path, breaking(), rows_per_shard=20)
    with pytest.raises(FileNotFoundError):
        Shards(tmp_path)
    write_shards(tmp_path, (x, y), rows_per_shard=30).verify()


def test_shards_are_not_written_over(tmp_path):
    write_shards(tmp_path, table())
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="is a folder of shards already; give another, or delete it"):
        write_shards(tmp_path, table(50))
    assert contents(tmp_path) == before


X, Y = table(4)


@pytest.mark.parametrize(
    "batches, what",
    [
        ([], "samples of write_shards has no rows"),
        ([(X[:0], Y[:0])], "samples of write_shards has no rows"),
        ([(X, Y), (X[:, :2], Y)], r"batch 1 has samples \(2,\) of float32 .* those before \(3,\) of float32 and"),
        (
            [(X, Y), (X, Y.astype(np.float32))],
            r"batch 1 has .* targets \(\) of float32, those before .* \(\) of int64;",
        ),
        ([(X, Y[:3])], r"batch 0 has samples \(4, 3\) and targets \(3,\); give one target a sample"),
        ([(X, Y), (X * np.nan, Y)], "batch 1 holds NaN or infinite values; clean them"),
        ([(X.astype(str), Y)], "shards hold rows of numbers"),
    ],
)
def test_batches_that_do_not_fit_are_refused_and_no_index_is_written(tmp_path, batches, what):
    with pytest.raises(ValueError, match=what):
        write_shards(tmp_path, batches)
    assert not (tmp_path / "index.json").exists()


def test_a_shard_has_at_least_a_row(tmp_path):
    with pytest.raises(ValueError, match="rows_per_shard of write_shards is a whole number of at least 1, given 0"):
        write_shards(tmp_path, (X, Y), rows_per_shard=0)
