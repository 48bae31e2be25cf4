"""A text of numbers becomes the rows that it has, in bounded memory, or is refused."""

import gzip
import os

import numpy as np
import pytest
from higgs_text import hundred_rows, text
from memory import MEGABYTE, memory_below
from tiny_data import bomb

from altmin.data import Damaged, csv_batches, csv_table, write_shards

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
    with pytest.raises(ValueError, match=r"t.csv is damaged: it has the label 0.5, expected whole numbers"):
        list(csv_batches(path))


@pytest.mark.parametrize("line", ["1,2\n", "1,2,word\n", "1,,3\n"])
def test_a_malformed_row_is_refused(tmp_path, line):
    path = tmp_path / "t.csv"
    path.write_text("0,1,2\n" + line)
    with pytest.raises(
        ValueError, match=r"t.csv is damaged: it is no table of numbers: .*; give one with a number in every column"
    ):
        list(csv_batches(path))


@pytest.mark.parametrize(
    "start", [b"1,5", b"1,5\n1,", b"5," * MEGABYTE, b"label"], ids=["first", "second", "fields", "head"]
)
@pytest.mark.parametrize("zipped", [True, False])
def test_one_huge_line_is_refused_before_it_is_in_memory(tmp_path, start, zipped):
    few, path = tmp_path / "few.csv", tmp_path / ("h.csv.gz" if zipped else "h.csv")
    few.write_text("1,2\n")
    list(csv_batches(few))  # pyarrow is in memory
    path.write_bytes(bomb(start, 160 * MEGABYTE) if zipped else start)
    if not zipped:
        os.truncate(path, 1 << 35)  # zeros, which take no room on a disc
    with memory_below(128 * MEGABYTE), pytest.raises(Damaged, match=r"line (has|of) more than [\d,]+ bytes; give one"):
        list(csv_batches(path))


@pytest.mark.parametrize(
    "content", ["1,2\r3,4\r", "1,2\r\n3,4\r\n", "\ufeff1,2\n3,4", '"1","2"\n"3","4"\n', "\ufeffa,b\n1,2\n3,4\n"]
)
def test_no_row_is_taken_for_a_head(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode())
    ((x, y),) = csv_batches(path)
    assert (x.tolist(), y.tolist()) == ([[2], [4]], [1, 3])


@pytest.mark.parametrize("content", ["", "\n", "1\n2\n", "1;2\n"])
def test_a_text_without_features_is_refused(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(Damaged, match="it has fewer than two columns; give a target and at least one feature"):
        list(csv_batches(path))


@pytest.mark.parametrize("label", ["16777217", "1e30", "-1e9", "inf", "nan", "0.5"])
def test_a_label_that_a_float_does_not_hold_exactly_is_refused(tmp_path, label):
    path = tmp_path / "t.csv"
    path.write_text("0,1\n16777215,1\n-3,1\n")
    ((_, y),) = csv_batches(path)
    assert y.tolist() == [0, 16777215, -3]
    path.write_text(f"0,1\n{label},1\n")
    with pytest.raises(Damaged, match="expected whole numbers below 16,777,216"):
        list(csv_batches(path))
