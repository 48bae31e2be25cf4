"""gzip files: as much of them in memory as was asked for, and unsound ones named."""

import gzip
import io

import pytest
from memory import MEGABYTE, memory_below
from tiny_data import bomb

from altmin.data import Damaged
from altmin.data.gunzip import Limited, unpacking


def test_only_what_is_asked_for_is_unpacked(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb(b"start", 64 * MEGABYTE))
    with memory_below(MEGABYTE), unpacking(path) as file:
        assert file.read(7) == b"start\0\0"


@pytest.mark.parametrize(
    "spoilt, what",
    [
        (lambda content: content[:-9], "the gzip stream is cut short"),
        (lambda content: content[:-8] + bytes(8), "it is not a sound gzip file .CRC check failed"),
        (lambda content: b"<html>", "it is not a sound gzip file .Not a gzipped file"),
        (lambda content: content[:12] + b"\xff" + content[13:], "it is not a sound gzip file"),
    ],
)
def test_an_unsound_stream_is_named(spoilt, what, tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(spoilt(gzip.compress(bytes(range(256)) * 10)))
    with pytest.raises(Damaged, match=what) as caught, unpacking(path) as file:
        file.read()
    assert caught.value.path == path


def test_a_missing_file_says_so_itself(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"), unpacking(tmp_path / "none"):
        pass


def test_what_is_limited_is_read_to_its_limit_and_no_further(tmp_path):
    content = Limited(io.BytesIO(b"abcdef"), tmp_path / "file.gz", 4)
    assert (content.read(3), content.read(1)) == (b"abc", b"d")
    with pytest.raises(Damaged, match=r"file\.gz is damaged: it unpacks to more than 4 bytes"):
        content.read(1)
