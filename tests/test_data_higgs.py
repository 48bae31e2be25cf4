"""HIGGS: streaming a table of text, splitting it, and caching it so that no half of it is ever used."""

import dataclasses
import gzip
import hashlib
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from altmin.data import Damaged, PartialData, higgs_cache
from altmin.data.higgs import HIGGS


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.setattr("altmin.data.standardise._known", {})


@pytest.fixture
def table():
    """100 rows of a label and 28 features, of which the last never varies."""
    random = np.random.default_rng(1)
    rows = random.normal(3, 2, (100, 29)).astype(np.float32)
    rows[:, 0] = random.integers(0, 2, 100)
    rows[:, -1] = np.float32(0.1)
    return rows


def text(rows):
    """As UCI writes it: 18 digits and an exponent, with which a float32 survives."""
    return "".join(",".join(f"{value:.18e}" for value in row) + "\n" for row in rows)


def write(root, content, name="HIGGS-100.csv.gz"):
    folder = root / "higgs"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(gzip.compress(content.encode() if isinstance(content, str) else content))
    return path


def load(split, root, dataset=HIGGS):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialData)
        return dataset.load(split, root)


def caches(root):
    return sorted(root.rglob("*.npy")) + sorted(root.rglob("*.tmp"))


@pytest.mark.parametrize("block", [1000, 1 << 20])
def test_streaming_gives_the_numbers_that_were_written(table, tmp_path, block, monkeypatch):
    monkeypatch.setattr(higgs_cache, "BLOCK", block)  # about a row at a time, or all rows at once
    path = write(tmp_path, text(table))
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    assert np.array_equal(table, np.loadtxt(path, np.float32, delimiter=","))


def test_a_partial_file_is_split_by_tenths_and_says_so(table, tmp_path):
    write(tmp_path, text(table))
    features = table[:, 1:].astype(np.float64)
    mean, std = features[:80].mean(0), features[:80].std(0)
    std[-1] = 1
    for split, part in (("train", slice(0, 80)), ("validation", slice(80, 90)), ("test", slice(90, 100))):
        with pytest.warns(PartialData, match="100 of 11,000,000 rows .train 80, validation 10, test 10"):
            x, y = HIGGS.load(split, tmp_path)
        assert y.tolist() == table[part, 0].tolist()
        np.testing.assert_allclose(x, (features[part] - mean) / std, rtol=1e-5, atol=1e-6)
        assert not x[:, -1].any()
    described = HIGGS.describe(tmp_path)
    assert (described.state, described.splits) == ("partial", {"train": 80, "validation": 10, "test": 10})


def test_rows_that_do_not_divide_by_ten_go_to_training():
    assert HIGGS.splits_of(49_525) == {"train": 39_621, "validation": 4_952, "test": 4_952}


def test_the_complete_file_is_split_as_published_and_beats_a_partial_one(table, tmp_path):
    write(tmp_path, text(table[:50]), "HIGGS-50.csv.gz")
    path = write(tmp_path, text(table), "HIGGS.csv.gz")
    splits = {"train": 70, "validation": 20, "test": 10}
    known = dataclasses.replace(HIGGS, splits=splits, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert known.load("validation", tmp_path)[1].tolist() == table[70:90, 0].tolist()
        assert known.load("test", tmp_path)[1].tolist() == table[90:, 0].tolist()
    assert known.describe(tmp_path).state == "found"
    assert [check.state for check in known.verify(tmp_path)] == ["sound"]


def test_the_complete_file_must_have_its_checksum(table, tmp_path):
    write(tmp_path, text(table), "HIGGS.csv.gz")
    other = dataclasses.replace(HIGGS, splits={"train": 80, "validation": 10, "test": 10})
    with pytest.raises(Damaged, match=f"sha256 .*{HIGGS.sha256}.*a partial file must be named HIGGS-<rows>"):
        other.load("train", tmp_path)
    assert caches(tmp_path) == []
    assert [check.state for check in other.verify(tmp_path)] == ["damaged"]


def test_of_several_partial_files_the_longest_is_read(table, tmp_path):
    write(tmp_path, text(table[:90]), "HIGGS-90.csv.gz")
    longest = write(tmp_path, text(table))
    write(tmp_path, text(table), "HIGGS-many.csv.gz")
    assert HIGGS.files(tmp_path) == [longest]


def test_text_is_read_once_and_again_when_it_changes(table, tmp_path, monkeypatch):
    path = write(tmp_path, text(table))
    load("train", tmp_path)
    (cache,) = caches(tmp_path)
    assert cache.parent == path.parent
    with monkeypatch.context() as patch:
        patch.setattr(higgs_cache, "_convert", lambda *_: pytest.fail("read again"))
        load("test", tmp_path)
    os.utime(path, ns=(1, 1))
    load("test", tmp_path)
    (touched,) = caches(tmp_path)  # the old one is gone
    assert touched != cache
    table[95] = 1
    write(tmp_path, text(table))
    os.utime(path, ns=(1, 1))
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    assert len(caches(tmp_path)) == 1
    assert caches(tmp_path) != [touched]


def test_a_spoilt_cache_is_made_again(table, tmp_path):
    path = write(tmp_path, text(table))
    higgs_cache.cached_rows(path, 100)
    (cache,) = caches(tmp_path)
    cache.write_bytes(cache.read_bytes()[:-4])
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    np.save(cache, table[:50])
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    np.save(cache, table.astype(object), allow_pickle=True)
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)


def test_a_read_only_data_folder_gets_no_cache(table, tmp_path):
    path = write(tmp_path, text(table))
    path.parent.chmod(0o555)
    try:
        load("train", tmp_path)
        (cache,) = caches(tmp_path)
        assert cache.parent == tmp_path / "user-cache" / "altmin" / "higgs"
    finally:
        path.parent.chmod(0o755)


def test_a_failure_in_the_middle_leaves_no_cache(table, tmp_path, monkeypatch):
    path = write(tmp_path, text(table))
    monkeypatch.setattr(higgs_cache, "BLOCK", 5000)
    blocks = higgs_cache._blocks

    def fail_after_one(*arguments):
        yield next(blocks(*arguments))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(higgs_cache, "_blocks", fail_after_one)
        with pytest.raises(KeyboardInterrupt):
            higgs_cache.cached_rows(path, 100)
    assert caches(tmp_path) == []
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)


def test_a_kill_in_the_middle_leaves_nothing_that_is_used(table, tmp_path):
    path = write(tmp_path, text(table))
    program = f"""
import os, pathlib
from altmin.data import higgs_cache
higgs_cache.BLOCK = 5000
blocks = higgs_cache._blocks
def die_after_one(*arguments):
    yield next(blocks(*arguments))
    os.kill(os.getpid(), {int(signal.SIGKILL)})
higgs_cache._blocks = die_after_one
higgs_cache.cached_rows(pathlib.Path({str(path)!r}), 100)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert [left.suffix for left in caches(tmp_path)] == [".tmp"]
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)


def spoil(rows, row, change):
    lines = text(rows).splitlines(keepends=True)
    lines[row] = change(lines[row])
    return "".join(lines)


@pytest.mark.parametrize("block", [5000, 1 << 20])
@pytest.mark.parametrize(
    "change, what",
    [
        (lambda line: line.split(",", 1)[1], "line 43 has 28 columns, expected 29"),
        (lambda line: "7,1\n", "line 43 has 2 columns"),
        (lambda line: "word," + line.split(",", 1)[1], "line 43, column 1 is 'word', expected a label"),
        (lambda line: "2.0," + line.split(",", 1)[1], "line 43, column 1 is '2.0', expected a label, 0 or 1"),
        (lambda line: line.rsplit(",", 1)[0] + ",nan\n", "line 43, column 29 is 'nan', expected a number"),
        (lambda line: line.rsplit(",", 1)[0] + ",\n", "line 43, column 29 is '', expected a number"),
    ],
)
def test_a_malformed_row_is_named(table, tmp_path, change, what, block, monkeypatch):
    monkeypatch.setattr(higgs_cache, "BLOCK", block)
    path = write(tmp_path, spoil(table, 42, change))
    with pytest.raises(Damaged, match=what) as caught:
        load("train", tmp_path)
    assert caught.value.path == path
    assert caches(tmp_path) == []


@pytest.mark.parametrize("rows", [99, 101])
def test_the_name_of_a_partial_file_must_not_lie(table, tmp_path, rows):
    path = write(tmp_path, text(np.concatenate([table, table])[:rows]))
    with pytest.raises(Damaged, match=f"it has {rows} rows, expected 100"):
        load("train", tmp_path)
    assert caches(tmp_path) == []
    (check,) = HIGGS.verify(tmp_path)
    assert (check.path, check.state) == (path, "damaged")


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-4],
        lambda content: content[:2000] + bytes([content[2000] ^ 255]) + content[2001:],
        lambda content: b"<html>",
        lambda content: b"",
    ],
    ids=["half", "no length", "flipped", "not gzip", "empty"],
)
def test_an_unsound_gzip_stream_is_refused(table, tmp_path, spoilt):
    path = write(tmp_path, text(table))
    path.write_bytes(spoilt(path.read_bytes()))
    with pytest.raises(Damaged, match=r"HIGGS-100.csv.gz is damaged: .*; replace it with a sound copy"):
        load("train", tmp_path)
    assert caches(tmp_path) == []
    assert [check.state for check in HIGGS.verify(tmp_path)] == ["damaged"]


def test_blank_lines_and_a_missing_last_newline_are_no_matter(table, tmp_path):
    path = write(tmp_path, text(table[:50]) + "\n" + text(table[50:]).rstrip("\n"))
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    assert [check.state for check in HIGGS.verify(tmp_path)] == ["sound"]


def test_too_few_rows_to_split(table, tmp_path):
    write(tmp_path, text(table[:9]), "HIGGS-9.csv.gz")
    with pytest.raises(ValueError, match="9 rows, too few"):
        load("train", tmp_path)


def test_without_pyarrow_a_sentence_says_what_to_install(table, tmp_path, monkeypatch):
    path = write(tmp_path, text(table))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ImportError, match=r"pip install 'altmin\[higgs\]'"):
            load("train", tmp_path)
    higgs_cache.cached_rows(path, 100)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    load("train", tmp_path)  # from the cache, pyarrow or not
