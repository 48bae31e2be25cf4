"""A table in a text becomes shards: the rows of HIGGS as its own reader has them, and malformed ones refused."""

import gzip

import numpy as np
import pytest
from higgs_text import hundred_rows, text

from altmin.data import csv_batches, csv_table, write_shards

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("block", [5000, 1 << 22])
@pytest.mark.parametrize("head", ["", "label," + ",".join("abcdefghijklmnopqrstuvwxyzäö") + "\n"])
@pytest.mark.parametrize("zipped", [True, False])
def test_the_text_of_higgs_becomes_its_rows(tmp_path, monkeypatch, block, head, zipped):
    monkeypatch.setattr(csv_table, "BLOCK", block)
    rows, content = hundred_rows(), (head + text(hundred_rows())).encode()
    path = tmp_path / ("h.csv.gz" if zipped else "h.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    x, y = write_shards(tmp_path / "s", csv_batches(path), rows_per_shard=33).rows(range(100))
    assert np.array_equal(x.numpy(), rows[:, 1:])
    assert np.array_equal(y.numpy(), rows[:, 0])


def test_targets_may_be_real_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("0.5,1,2\n-1.25,3,4\n")
    ((x, y),) = csv_batches(path, labels=False)
    assert (x.tolist(), y.tolist(), y.dtype) == ([[1, 2], [3, 4]], [0.5, -1.25], np.float32)
    with pytest.raises(ValueError, match=r"t.csv has the label 0.5, expected whole numbers"):
        list(csv_batches(path))


@pytest.mark.parametrize("line", ["1,2\n", "1,2,word\n", "1,,3\n"])
def test_a_malformed_row_is_refused(tmp_path, line):
    path = tmp_path / "t.csv"
    path.write_text("0,1,2\n" + line)
    with pytest.raises(ValueError, match=r"t.csv is no table of numbers: .*; give one with a number in every column"):
        list(csv_batches(path))
