"""HIGGS: a table of text streamed into a cache, of which no half is ever used."""

import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from higgs_text import caches, hundred_rows, load, text, write
from memory import MEGABYTE, memory_below

from altmin.data import Damaged, higgs_cache
from altmin.data.higgs import HIGGS


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.setattr("altmin.data.standardise._known", {})


@pytest.fixture
def table():
    return hundred_rows()


@pytest.mark.parametrize("block", [1000, 1 << 20])
def test_streaming_gives_the_numbers_that_were_written(table, tmp_path, block, monkeypatch):
    monkeypatch.setattr(higgs_cache, "BLOCK", block)  # about a row at a time, or all rows at once
    path = write(tmp_path, text(table))
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    assert np.array_equal(table, np.loadtxt(path, np.float32, delimiter=","))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil, what",
    [
        (lambda cache, table: cache.write_bytes(cache.read_bytes()[:-4]), "it has 11,756 bytes, expected 11,760"),
        (lambda cache, table: cache.write_bytes(b""), "it has 0 bytes, expected 11,760"),
        (lambda cache, table: np.save(cache, table[:50]), "bytes, expected 11,760"),
        (lambda cache, table: np.save(cache, table), "it has 11,728 bytes, expected 11,760"),
        (lambda cache, table: np.save(cache, table.astype(object), allow_pickle=True), "bytes, expected 11,760"),
        (lambda cache, table: flip(cache, 5000), "its content is not what was written"),
        (lambda cache, table: flip(cache, -40), "its content is not what was written"),
        (lambda cache, table: flip(cache, -1), "its content is not what was written"),
        (lambda cache, table: flip(cache, 30), "it does not start as an array of 100 rows does"),
    ],
    ids=[
        "cut",
        "empty",
        "other rows",
        "no digest",
        "pickled",
        "flipped",
        "flipped late",
        "other digest",
        "other header",
    ],
)
def test_a_spoilt_cache_is_made_again_with_a_sentence(table, tmp_path, spoil, what):
    path = write(tmp_path, text(table))
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    (cache,) = caches(tmp_path)
    spoil(cache, table)
    with pytest.warns(RuntimeWarning, match=f"the cache {cache} is made again from {path}: .*{what}"):
        assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(higgs_cache.cached_rows(path, 100), table)


def test_a_cache_of_another_text_is_not_used(table, tmp_path):
    path, other = write(tmp_path, text(table)), write(tmp_path, text(table[::-1]), "HIGGS-0100.csv.gz")
    higgs_cache.cached_rows(path, 100)
    (cache,) = caches(tmp_path)
    higgs_cache.cached_rows(other, 100)
    (foreign,) = set(caches(tmp_path)) - {cache}
    shutil.copy(foreign, cache)
    with pytest.warns(RuntimeWarning, match="its content is not what was written"):
        assert np.array_equal(higgs_cache.cached_rows(path, 100), table)


@pytest.mark.parametrize("line", [b"0", b"0,", b"\n", b"0," * 28 + b"0\n"], ids=["digits", "fields", "blank", "rows"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused_early(tmp_path, line):
    path = write(tmp_path, line * (128 * MEGABYTE // len(line)))
    with memory_below(64 * MEGABYTE), pytest.raises(Damaged, match=r"line 1 has|or more rows, expected 100|0 rows"):
        load("train", tmp_path)
    with memory_below(64 * MEGABYTE), pytest.raises(Damaged, match=r"a line of more than|or more rows|unpacks to more"):
        HIGGS.check(path)
    assert caches(tmp_path) == []


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


def test_text_is_read_once_and_again_when_it_changes(table, tmp_path, monkeypatch):
    path = write(tmp_path, text(table))
    load("train", tmp_path)
    (cache,) = caches(tmp_path)
    assert cache.parent == tmp_path / "user-cache" / "altmin" / "higgs", "never beside the text"
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


def test_texts_of_one_name_in_two_folders_have_caches_of_their_own(table, tmp_path):
    (tmp_path / "other").mkdir()
    paths = write(tmp_path, text(table)), write(tmp_path / "other", text(table[::-1]))
    for path in paths:
        os.utime(path, ns=(1, 1))
    for _ in range(2):
        assert np.array_equal(higgs_cache.cached_rows(paths[0], 100), table)
        assert np.array_equal(higgs_cache.cached_rows(paths[1], 100), table[::-1])
    assert len(caches(tmp_path)) == 2


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


def test_blank_lines_and_a_missing_last_newline_are_no_matter(table, tmp_path):
    path = write(tmp_path, text(table[:50]) + "\n" + text(table[50:]).rstrip("\n"))
    assert np.array_equal(higgs_cache.cached_rows(path, 100), table)
    assert [check.state for check in HIGGS.verify(tmp_path)] == ["sound"]


def test_without_pyarrow_a_sentence_says_what_to_install(table, tmp_path, monkeypatch):
    path = write(tmp_path, text(table))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ImportError, match=r"pip install 'altmin\[higgs\]'"):
            load("train", tmp_path)
    higgs_cache.cached_rows(path, 100)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    load("train", tmp_path)  # from the cache, pyarrow or not


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
