"""CIFAR-10: the official batches read, checked and unpacked, on tiny files made here."""

import dataclasses
import hashlib
import io
import tarfile

import numpy as np
import pytest
from tiny_data import md5

from altmin.data import Damaged
from altmin.data.cifar10 import CIFAR10


@pytest.fixture
def cifar(tmp_path):
    """Two training batches and a test batch of 4 records; image i of colour c has the value 10 i + c."""
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    sums = {}
    for batch, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        record = b""
        for image in range(4 * batch, 4 * batch + 4):
            record += bytes([image]) + b"".join(bytes([10 * image + colour]) * 1024 for colour in range(3))
        (folder / f"{name}.bin").write_bytes(record)
        sums[name] = md5(record)
    splits = {"train": 6, "validation": 2, "test": 4}
    return dataclasses.replace(CIFAR10, splits=splits, checksums=sums, batch=4), tmp_path


@pytest.mark.parametrize("split, first, last", [("train", 0, 6), ("validation", 6, 8), ("test", 8, 12)])
def test_cifar_splits_channels_and_scale(cifar, split, first, last, monkeypatch):
    monkeypatch.setattr("altmin.data.standardise._known", {})
    tiny, root = cifar
    x, y = tiny.load(split, root)
    assert x.shape == (last - first, 3, 32, 32)
    assert y.tolist() == list(range(first, last))
    # The first six images of a colour are c, c + 10, ..., c + 50: mean c + 25, deviation 10 sqrt(35 / 12).
    expected = (np.arange(first, last) * 10 - 25) / (10 * np.sqrt(35 / 12))
    np.testing.assert_allclose(x.numpy(), np.broadcast_to(expected[:, None, None, None], x.shape), rtol=1e-6)


def test_cifar_batches_must_have_their_size_and_checksum(cifar):
    tiny, root = cifar
    path = tiny.files(root)[1]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(Damaged, match=r"data_batch_2\.bin is damaged: it has 12,291 bytes, expected 12,292"):
        tiny.load("validation", root)
    path.write_bytes(content + b"more")
    with pytest.raises(Damaged, match=r"data_batch_2\.bin is damaged: it has 12,293 or more bytes, expected 12,292"):
        tiny.load("validation", root)
    path.write_bytes(b"\7" + content[1:])
    with pytest.raises(Damaged, match=r"data_batch_2\.bin is damaged: its content has md5"):
        tiny.load("validation", root)


RECORD = bytes(3073)


def tar(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def from_archive(server, members):
    content = server.files["/cifar.tar.gz"] = tar(members)
    sums = {f"data_batch_{batch}": hashlib.md5(RECORD).hexdigest() for batch in (1, 2)}
    url, archive_sha256 = server.url("/cifar.tar.gz"), hashlib.sha256(content).hexdigest()
    return dataclasses.replace(CIFAR10, url=url, checksums=sums, archive_sha256=archive_sha256, batch=1)


def test_fetching_cifar10_unpacks_the_batches_and_nothing_else(server, tmp_path):
    batches = {f"cifar-10-batches-bin/data_batch_{batch}.bin": RECORD for batch in (1, 2)}
    evil = {"../evil": b"evil", "/evil": b"evil", "cifar-10-batches-bin/../../evil": b"evil", "readme": b"-"}
    tiny = from_archive(server, evil | batches)
    root = tmp_path / "data"
    assert tiny.fetch(root) == tiny.files(root)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(found) == tiny.files(root)
    tiny.files(root)[0].write_bytes(b"")
    assert tiny.fetch(root) == tiny.files(root)[:1]


def test_a_cifar10_archive_put_there_by_hand_is_not_downloaded(server, tmp_path):
    tiny = from_archive(server, {f"cifar-10-batches-bin/data_batch_{batch}.bin": RECORD for batch in (1, 2)})
    (tmp_path / "cifar10").mkdir()
    archive = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    archive.write_bytes(server.files["/cifar.tar.gz"])
    tiny.fetch(tmp_path)
    assert server.asked == []
    assert not archive.exists()


def test_another_archive_than_the_published_one_is_refused(server, tmp_path):
    tiny = from_archive(server, {"cifar-10-batches-bin/data_batch_1.bin": RECORD})
    server.files["/cifar.tar.gz"] += b"more"
    with pytest.raises(ValueError, match="gave a wrong file: its content has sha256"):
        tiny.fetch(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
