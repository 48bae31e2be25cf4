"""HIGGS: a table of text, published in parts, streamed into a cache of which no half is ever used."""

import dataclasses
import gzip
import hashlib
import io
import os
import threading
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from higgs_text import caches, hundred_rows, load, text, write
from memory import MEGABYTE, memory_below

from altmin.data import Damaged, PartialData, higgs
from altmin.data.higgs import HIGGS


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.setattr("altmin.data.standardise._known", {})


@pytest.fixture
def table():
    return hundred_rows()


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


def test_of_two_that_load_at_once_one_writes_the_cache_and_the_other_waits(table, tmp_path, monkeypatch):
    """The first waits, in the middle of writing, for the second to write too; in vain."""
    write(tmp_path, text(table))
    real, entered, found = higgs.write_shards, [], []
    second = threading.Thread(target=lambda: found.append(load("test", tmp_path)))

    def writing(folder, batches):
        entered.append(folder)
        if len(entered) == 1:
            second.start()
            second.join(1.0)
        return real(folder, batches)

    monkeypatch.setattr(higgs, "write_shards", writing)
    found.append(load("test", tmp_path))
    second.join()
    assert len(entered) == 1
    assert len(found) == 2
    assert found[0][0].equal(found[1][0])


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


@pytest.mark.parametrize("rows", [99, 101])
def test_the_name_of_a_partial_file_must_not_lie(table, tmp_path, rows):
    path = write(tmp_path, text(np.concatenate([table, table])[:rows]))
    with pytest.raises(Damaged, match=f"it has {rows}( or more)? rows, expected 100"):
        load("train", tmp_path)
    assert caches(tmp_path) == []
    (check,) = HIGGS.verify(tmp_path)
    assert (check.path, check.state) == (path, "damaged")


def test_too_few_rows_to_split(table, tmp_path):
    write(tmp_path, text(table[:9]), "HIGGS-9.csv.gz")
    with pytest.raises(ValueError, match="9 rows, too few"):
        load("train", tmp_path)


def from_server(server, content):
    url, zip_url = server.url("/HIGGS.csv.gz"), server.url("/higgs.zip")
    sha256 = hashlib.sha256(content).hexdigest()
    return dataclasses.replace(HIGGS, url=url, zip_url=zip_url, sha256=sha256, download_size=1_000_000)


def zipped(name, content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def test_fetching_from_server(server, tmp_path):
    content = server.files["/HIGGS.csv.gz"] = gzip.compress(b"1.0\n")
    tiny = from_server(server, content)
    (path,) = tiny.fetch(tmp_path)
    assert path.read_bytes() == content
    assert tiny.fetch(tmp_path) == []
    assert len(server.asked) == 1


def test_higgs_comes_from_the_zip_archive_where_the_plain_file_is_gone(server, tmp_path):
    content = gzip.compress(b"1.0\n")
    server.files["/higgs.zip"] = zipped("HIGGS.csv.gz", content)
    (path,) = from_server(server, content).fetch(tmp_path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "archive, what",
    [
        (b"<html>", "gave a wrong file: it cannot be unpacked"),
        (zipped("other", b""), "gave a wrong file: it cannot be unpacked"),
        (zipped("HIGGS.csv.gz", b"other"), "gave a wrong file: its content has sha256"),
        (
            zipped("HIGGS.csv.gz", bytes(5 * MEGABYTE)),
            "gave a wrong file: it unpacks to 5,242,880 bytes, expected 1,000,000",
        ),
    ],
)
def test_a_wrong_higgs_archive_is_refused(server, tmp_path, archive, what):
    server.files["/higgs.zip"] = archive
    with pytest.raises(ValueError, match=what):
        from_server(server, b"right").fetch(tmp_path)
    assert not (tmp_path / "higgs" / "HIGGS.csv.gz").exists()


def test_a_download_of_higgs_has_a_limit(server, tmp_path):
    server.files["/HIGGS.csv.gz"] = bytes(1_000_001)
    with pytest.raises(ValueError, match="it has 1,000,001 bytes, expected at most 1,000,000"):
        from_server(server, b"right").fetch(tmp_path)
    del server.files["/HIGGS.csv.gz"]
    server.files["/higgs.zip"] = bytes(3_000_000)
    with pytest.raises(ValueError, match=r"it has 3,000,000 bytes, expected at most 2,058,576"):
        from_server(server, b"right").fetch(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def rows_of(path: Path) -> np.ndarray:
    """All rows of a text of 100, labels first, by its cache."""
    x, y = HIGGS._cached(path, 100).rows(range(100))
    return np.concatenate([y[:, None], x], axis=1)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["index.json", "shard-00000.arrow"])
@pytest.mark.parametrize("spoil", [flip, Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-4])])
def test_a_spoilt_cache_is_made_again(table, tmp_path, name, spoil):
    path = write(tmp_path, text(table))
    assert np.array_equal(rows_of(path), table)
    (cache,) = caches(tmp_path)
    spoil(cache / name)
    with warnings.catch_warnings(record=True) as said:
        assert np.array_equal(rows_of(path), table)
    spoken = [f"the cache {cache} is made again from {path}" in str(each.message) for each in said]
    assert spoken == [True] * (not (name == "index.json" and spoil is Path.unlink)), "without an index there is none"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(rows_of(path), table)


@pytest.mark.parametrize("line", [b"0", b"0,", b"\n", b"0," * 28 + b"0\n"], ids=["digits", "fields", "blank", "rows"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused_early(tmp_path, line):
    path = write(tmp_path, line * (192 * MEGABYTE // len(line)))
    for read in (lambda: load("train", tmp_path), lambda: HIGGS.check(path)):
        with memory_below(128 * MEGABYTE), pytest.raises(Damaged, match=r"or more rows|0 rows|no table of numbers"):
            read()
    assert caches(tmp_path) == []


def test_text_is_read_once_and_again_when_it_changes(table, tmp_path, monkeypatch):
    path = write(tmp_path, text(table))
    load("train", tmp_path)
    (cache,) = caches(tmp_path)
    assert cache.parent == tmp_path / "user-cache" / "altmin" / "higgs", "never beside the text"
    with monkeypatch.context() as patch:
        patch.setattr(higgs, "csv_batches", lambda *_: pytest.fail("read again"))
        load("test", tmp_path)
    os.utime(path, ns=(1, 1))
    load("test", tmp_path)
    (touched,) = caches(tmp_path)  # the old one is gone
    assert touched != cache
    table[95] = 1
    write(tmp_path, text(table))
    os.utime(path, ns=(1, 1))
    assert np.array_equal(rows_of(path), table)
    assert len(caches(tmp_path)) == 1
    assert caches(tmp_path) != [touched]


def test_texts_of_one_name_in_two_folders_have_caches_of_their_own(table, tmp_path):
    (tmp_path / "other").mkdir()
    paths = write(tmp_path, text(table)), write(tmp_path / "other", text(table[::-1]))
    for path in paths:
        os.utime(path, ns=(1, 1))
    for _ in range(2):
        assert np.array_equal(rows_of(paths[0]), table)
        assert np.array_equal(rows_of(paths[1]), table[::-1])
    assert len(caches(tmp_path)) == 2


def spoil(rows, row, change):
    lines = text(rows).splitlines(keepends=True)
    lines[row] = change(lines[row])
    return "".join(lines)


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda line: line.split(",", 1)[1], "Row #43: Expected 29 columns, got 28"),
        (lambda line: "word," + line.split(",", 1)[1], "CSV conversion error to float: invalid value 'word'"),
        (lambda line: "2.0," + line.split(",", 1)[1], "one is not a label, 0 or 1, and 28 numbers"),
        (lambda line: line.rsplit(",", 1)[0] + ",nan\n", "in rows 1 to 100 one is not a label"),
        (lambda line: line.rsplit(",", 1)[0] + ",\n", "CSV conversion error to float: invalid value ''"),
    ],
)
def test_a_malformed_row_is_named(table, tmp_path, change, what):
    path = write(tmp_path, spoil(table, 42, change))
    with pytest.raises(Damaged, match=what) as caught:
        load("train", tmp_path)
    assert caught.value.path == path
    assert caches(tmp_path) == []


def test_blank_lines_and_a_missing_last_newline_are_no_matter(table, tmp_path):
    path = write(tmp_path, text(table[:50]) + "\n" + text(table[50:]).rstrip("\n"))
    assert np.array_equal(rows_of(path), table)
    assert [check.state for check in HIGGS.verify(tmp_path)] == ["sound"]


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
