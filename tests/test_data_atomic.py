"""A file appears whole or not at all."""

import errno
import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from altmin.data.atomic import discard, naming, replacing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(target) as file:
        file.writelines([b"half", None])
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    with replacing(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_what_a_killed_writer_left_is_cleared_but_not_what_is_being_written(tmp_path):
    abandoned, active = tmp_path / ".file.a.tmp", tmp_path / ".file.b.tmp"
    for left in (abandoned, active):
        left.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 7200,) * 2)
    with replacing(tmp_path / "file"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.b.tmp", "file"]


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is of Linux")
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disc_names_the_file_that_could_not_be_written(tmp_path, monkeypatch, size):
    def on_a_full_disc(prefix: str, suffix: str, dir: Path) -> tuple[int, str]:
        return os.open("/dev/full", os.O_WRONLY), str(dir / "unfinished")

    monkeypatch.setattr(tempfile, "mkstemp", on_a_full_disc)
    target = tmp_path / "file"
    with pytest.raises(OSError, match=f"No space left on device: '{target}'"), replacing(target) as file:
        file.write(bytes(size))  # a byte fails when it is flushed, more at once
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "os.chmod", "tempfile.mkstemp"])
def test_every_failure_of_the_disc_names_the_file(tmp_path, monkeypatch, call):
    monkeypatch.setattr(call, full)
    target = tmp_path / "file"
    with pytest.raises(OSError, match=f"No space left on device: '{target}'"), replacing(target) as file:
        file.write(b"new")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_what_is_read_is_not_taken_for_one_of_what_is_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), replacing(tmp_path / "file") as file:
        file.write((tmp_path / "elsewhere").read_bytes())
    with pytest.raises(OSError, match=r"^no number$"), naming(tmp_path / "file"):
        raise OSError("no number")


def test_the_owner_of_a_file_discards_what_was_left_of_it_and_nothing_else(tmp_path):
    for name in (".run[1].abc.tmp", ".run[1].def.tmp", ".run1.abc.tmp", "run[1]", "run[1].tmp"):
        (tmp_path / name).touch()
    discard(tmp_path / "run[1]")
    assert {path.name for path in tmp_path.iterdir()} == {".run1.abc.tmp", "run[1]", "run[1].tmp"}
