"""HIGGS: complete and partial files, their splits and checksums, and fetching."""

import dataclasses
import gzip
import hashlib
import io
import warnings
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest
from file_server import Server, running
from higgs_text import caches, hundred_rows, load, text, write
from memory import MEGABYTE, memory_below

from altmin.data import Damaged, PartialData
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


def test_an_endless_line_is_not_gathered_to_be_counted(tmp_path):
    path = write(tmp_path, b"0" * (64 * MEGABYTE), "HIGGS-1000000.csv.gz")
    with memory_below(32 * MEGABYTE), pytest.raises(Damaged, match="a line of more than 4,096 bytes after 0 rows"):
        HIGGS.check(path)


def test_too_few_rows_to_split(table, tmp_path):
    write(tmp_path, text(table[:9]), "HIGGS-9.csv.gz")
    with pytest.raises(ValueError, match="9 rows, too few"):
        load("train", tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as each:
        yield each


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
        (b"<html>", "gave a wrong file: it is not the archive expected"),
        (zipped("other", b""), "gave a wrong file: it is not the archive expected"),
        (zipped("HIGGS.csv.gz", b"other"), "higgs.zip is damaged: its content has sha256"),
        (zipped("HIGGS.csv.gz", bytes(5 * MEGABYTE)), "higgs.zip is damaged: it unpacks to more than 1,000,000 bytes"),
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
