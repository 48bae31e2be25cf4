"""A file appears whole or not at all."""

import os
import stat
import time

import pytest

from altmin.data.atomic import discard, replacing


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


def test_the_owner_of_a_file_discards_what_was_left_of_it_and_nothing_else(tmp_path):
    for name in (".run[1].abc.tmp", ".run[1].def.tmp", ".run1.abc.tmp", "run[1]", "run[1].tmp"):
        (tmp_path / name).touch()
    discard(tmp_path / "run[1]")
    assert {path.name for path in tmp_path.iterdir()} == {".run1.abc.tmp", "run[1]", "run[1].tmp"}
