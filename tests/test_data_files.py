"""Files: written whole or not at all, downloaded and compared with a checksum; `altmin data` as it is typed."""

import dataclasses
import gzip
import io
import json
import os
import tarfile
from hashlib import md5, sha256
from pathlib import Path

import pytest
from commands import said

import altmin.data
from altmin.common.files import replacing
from altmin.data.base import Damaged, cache_folder, data_folder, download
from altmin.data.cifar10 import CIFAR10

BOMB = b"".join(gzip.compress(bytes(1 << 24)) for _ in range(17))
"""272 MiB of zeros, a quarter of a megabyte when packed."""


# Writing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    for content in (b"old", b"new"):
        with replacing(target) as file:
            file.write(content)
        assert target.read_bytes() == content
    with pytest.raises(TypeError), replacing(target) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]


def test_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    """The last to end is there, whole."""
    target = tmp_path / "file"
    with replacing(target) as first:
        first.write(b"first")
        with replacing(target) as second:
            second.write(b"second")
        assert target.read_bytes() == b"second"
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_followed_and_a_folder_is_left(tmp_path: Path) -> None:
    target, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"content")
    assert link.is_symlink()
    assert target.read_bytes() == b"content"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError), replacing(tmp_path / "folder") as file:
        file.write(b"content")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_and_a_device_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with replacing(tmp_path / "pipe") as file:
        file.write(b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    with replacing("/dev/null") as file:
        file.write(b"content")
    assert Path("/dev/null").is_char_device()


# Reading


def test_small_files_that_unpack_to_much_are_refused_early(tmp_path: Path) -> None:
    mnist, higgs = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", tmp_path / "higgs" / "HIGGS-100.csv.gz"
    table = tmp_path / "t.csv.gz"
    for path in (mnist, higgs, table):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(BOMB + b"no gzip")  # which a reader to the end would come to
    assert [*altmin.data.verify("mnist", tmp_path).values()] == ["sound"] * 3 + ["damaged"]
    with pytest.raises(Damaged, match="sha256"):
        altmin.data.load("mnist", "test", tmp_path)
    with pytest.raises(Damaged, match="268,435,456 bytes"), pytest.warns(altmin.data.higgs.PartialData):
        altmin.data.load("higgs", "test", tmp_path)
    code, out, error = said("train", "--data", str(table), "--target", "a")
    assert (code, out, error.count("\n"), "268,435,456 bytes" in error) == (2, "", 1, True)


@pytest.mark.parametrize("place", [30, -6])
def test_a_damaged_packed_table_gets_one_line(place: int, tmp_path: Path) -> None:
    content = bytearray(gzip.compress("\n".join(["a,b", *(f"{n},{n % 2}" for n in range(99))]).encode()))
    content[place : place + 4] = b"\xff" * 4
    (tmp_path / "t.csv.gz").write_bytes(content)
    code, out, error = said("train", "--data", str(tmp_path / "t.csv.gz"), "--target", "b", "--epochs", "1")
    assert (code, out, error.count("\n")) == (2, "", 1)


def test_folders_are_the_ones_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.delenv("ALTMIN_DATA", raising=False)
    assert cache_folder() == data_folder() == Path("/cache/altmin")
    monkeypatch.setenv("ALTMIN_DATA", "~/data")
    assert data_folder() == Path.home() / "data"
    assert data_folder(tmp_path) == tmp_path


# Downloading


def test_a_download_without_a_network_says_where_to_put_the_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.gz"
    with pytest.raises(OSError, match=f"put it at {path}"):
        download("http://127.0.0.1:9/file.gz", path)
    assert not path.exists()


def test_a_download_with_another_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web").write_bytes(b"content")
    url, path = (tmp_path / "web").as_uri(), tmp_path / "folder" / "file"
    with pytest.raises(ValueError, match="published"):
        download(url, path, sha256(b"other").hexdigest())
    assert not list(path.parent.iterdir())
    download(url, path, sha256(b"content").hexdigest())
    assert path.read_bytes() == b"content"


def test_fetching_cifar10_unpacks_the_batches_and_nothing_else(tmp_path: Path) -> None:
    record, stream = bytes(3073), io.BytesIO()
    names = ["data_batch_1", "test_batch"]
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in [f"cifar-10-batches-bin/{name}.bin" for name in names] + ["../evil"]:
            member = tarfile.TarInfo(name)
            member.size = len(record)
            archive.addfile(member, io.BytesIO(record))
    web = tmp_path / "cifar.tar.gz"
    web.write_bytes(stream.getvalue())
    sums, archive_sha256 = {name: md5(record).hexdigest() for name in names}, sha256(stream.getvalue()).hexdigest()
    tiny = dataclasses.replace(CIFAR10, url=web.as_uri(), checksums=sums, archive_sha256=archive_sha256)
    root = tmp_path / "data"
    assert tiny.fetch(root) == tiny.files(root)
    assert sorted(path for path in root.rglob("*") if path.is_file()) == tiny.files(root)
    assert not (tmp_path / "evil").exists()
    tiny.files(root)[0].write_bytes(b"")
    assert tiny.fetch(root) == tiny.files(root)[:1]
    assert tiny.fetch(root) == []


# The command


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path))
    return tmp_path


def test_list_shows_every_set_and_where_it_is(folder: Path) -> None:
    (folder / "higgs").mkdir()
    (folder / "higgs" / "HIGGS-1000.csv.gz").touch()
    code, out, _ = said("data", "list", "--json", str(folder / "list.json"))
    assert code == 0
    assert all(name in out for name in altmin.data.names())
    written = {each["name"]: each for each in json.loads((folder / "list.json").read_text())}
    states = ["embedded", "embedded", "embedded", "embedded", "missing", "missing", "partial", "embedded"]
    assert [each["state"] for each in written.values()] == states
    assert written["mnist"]["splits"] == {"train": 50_000, "validation": 10_000, "test": 10_000}
    assert written["higgs"]["splits"] == {"train": 800, "validation": 100, "test": 100}


def test_verify_names_a_damaged_file_and_exits_with_one(folder: Path) -> None:
    path = folder / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir()
    path.write_bytes(b"spoilt")
    code, _, _ = said("data", "verify", "--json", str(folder / "checks.json"))
    assert code == 1
    checks = json.loads((folder / "checks.json").read_text())
    assert {"name": "fashion-mnist", "state": "damaged", "path": str(path)} in checks
    assert [each["state"] for each in checks if each["name"] == "fashion-mnist"] == ["damaged", *["missing"] * 3]
    assert {each["state"] for each in checks if each["name"] != "fashion-mnist"} == {"sound"}
    assert said("data", "verify", "mnist")[0] == 0
    assert said("data", "verify", "cifar10")[0] == 1
