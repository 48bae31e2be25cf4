"""Files: written whole or not at all, checked, unpacked as far as they are read, and where they go."""

import errno
import gzip
import hashlib
import io
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from memory import MEGABYTE, memory_below
from tiny_data import bomb

from altmin.data import atomic
from altmin.data.atomic import discard, naming, replacing
from altmin.data.damage import Damaged, digest, expect, sha256, unpacking
from altmin.data.folders import cache_folder, data_folder, prepare, writable
from altmin.data.progress import progress, silent


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


def temporary(name: str, number: int) -> str:
    return f".{name}.{number:032x}.tmp"


def test_what_a_killed_writer_left_is_cleared_but_not_what_is_being_written(tmp_path):
    abandoned, active = (tmp_path / temporary("file", n) for n in (1, 2))
    for left in (abandoned, active):
        left.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 7200,) * 2)
    with replacing(tmp_path / "file"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [active.name, "file"]


@pytest.mark.parametrize("name", ["a**b", "*", "[!_]?", "x" * 255, "ä" * 127])
def test_any_name_that_a_file_may_have_can_be_written_and_touches_no_other(tmp_path, name):
    others = [tmp_path / temporary(other, 1) for other in ("other", f"{name[:20]}.other")]
    for each in others:
        each.touch()
        os.utime(each, (time.time() - 7200,) * 2)
    for content in (b"old", b"new"):
        atomic.check(tmp_path / name)
        with replacing(tmp_path / name) as file:
            file.write(content)
            assert len(list(tmp_path.iterdir())) == (3 if content == b"old" else 4)
        discard(tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / name])


def test_a_link_is_followed_and_what_it_leads_to_is_replaced_with_its_permissions(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "file", tmp_path / "link"
    (tmp_path / "between").symlink_to("real/file")
    link.symlink_to("between")
    for content in (b"new", b"newer"):  # at first the link leads to nothing
        with replacing(link) as file:
            file.write(content)
            assert len(list((tmp_path / "real").glob(".file.*.tmp"))) == 1
        assert target.read_bytes() == content
        target.chmod(0o600)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list((tmp_path / "real").iterdir()) == [target]
    (tmp_path / "circle").symlink_to("circle")
    for write in (atomic.check, lambda path: replacing(path).__enter__()):
        with pytest.raises(OSError, match=r"symbolic links: .*circle"):
            write(tmp_path / "circle")
    assert (tmp_path / "circle").is_symlink()


def test_a_named_pipe_gets_the_content_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic.check(pipe)
    with pytest.raises(TypeError), replacing(pipe) as file:
        file.writelines([b"half", None])
    with replacing(pipe) as file:
        file.write(b"all")
    assert os.read(reader, 100) == b"all"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_is_written_to_and_what_holds_no_files_is_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(os.devnull)
    atomic.check(link)
    with replacing(link) as file:
        file.write(b"gone")
    assert stat.S_ISCHR(link.stat().st_mode)
    assert link.is_symlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
    for name, said in (("socket", "is a socket or a whole disc; name a file"), (".", "is a folder; name a file in it")):
        for write in (atomic.check, lambda path: replacing(path).__enter__()):
            with pytest.raises(OSError, match=said):
                write(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "socket"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors that are files are of Linux")
def test_standard_output_that_is_a_file_gets_the_content_where_it_has_come_to(tmp_path):
    """`--json /dev/stdout > out`, and `--json out > out`."""
    script = (
        "import sys; from pathlib import Path; from altmin.data.atomic import replacing\n"
        "print('before')\nwith replacing(Path(sys.argv[1])) as file:\n    file.write(b'content\\n')\nprint('after')"
    )
    link = tmp_path / "link"
    link.symlink_to("/proc/self/fd/1")
    for name in ("link", "out"):
        with open(tmp_path / "out", "wb") as out:
            subprocess.run([sys.executable, "-c", script, tmp_path / name], stdout=out, check=True)
        assert (tmp_path / "out").read_text() == "before\ncontent\nafter\n"
    assert link.is_symlink()


def test_a_process_without_standard_output_appends_all_the_same(tmp_path):
    """The file then has the number of standard output."""
    script = "import sys; from pathlib import Path; from altmin.data.atomic import append\nfor n in range(3):\n"
    script += "    append(Path(sys.argv[1]), f'{n}\\n'.encode())"
    words = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", script, str(tmp_path / "lines")]
    subprocess.run(words, check=True)
    assert (tmp_path / "lines").read_text() == "0\n1\n2\n"


def test_processes_that_append_to_one_file_lose_nothing(tmp_path):
    """Each line is longer than the 4096 bytes that a system may write at once."""
    path = tmp_path / "deep" / "lines"
    script = (
        "import sys; from pathlib import Path; from altmin.data.atomic import append\n"
        "for n in range(50):\n    append(Path(sys.argv[1]), f'{sys.argv[2]} {n} {9000 * sys.argv[2]}\\n'.encode())"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, path, name]) for name in "abc"]
    assert [process.wait() for process in started] == [0, 0, 0]
    lines = [line.split() for line in path.read_text().splitlines()]
    assert sorted((name, int(n)) for name, n, _ in lines) == [(name, n) for name in "abc" for n in range(50)]
    assert all(text == 9000 * name for name, _, text in lines)
    assert list(path.parent.iterdir()) == [path]


def test_what_is_appended_begins_a_line_and_a_failure_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    path.write_text("one")
    atomic.append(path, b"two\n")
    assert path.read_text() == "one\ntwo\n"
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        atomic.append(path, b"three\n")
    assert path.read_text() == "one\ntwo\n"
    assert list(tmp_path.iterdir()) == [path]


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is of Linux")
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disc_names_the_file_that_could_not_be_written(tmp_path, monkeypatch, size):
    class OnAFullDisc(atomic._Target):
        def __init__(self, name: Path, path: Path):
            io.FileIO.__init__(self, "/dev/full", "wb")
            self.path = path

    monkeypatch.setattr(atomic, "_Target", OnAFullDisc)
    target = tmp_path / "file"
    with pytest.raises(OSError, match=f"No space left on device: '{target}'"), replacing(target) as file:
        file.write(bytes(size))  # a byte fails when it is flushed, more at once
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
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
    own = {temporary("run[1]", n) for n in (1, 2)}
    others = {temporary("run1", 1), temporary("run[1].2", 1), "run[1]", "run[1].tmp"}
    for name in own | others:
        (tmp_path / name).touch()
    discard(tmp_path / "run[1]")
    assert {path.name for path in tmp_path.iterdir()} == others


ABC = "900150983cd24fb0d6963f7d28e17f72"  # the md5 of "abc", from RFC 1321


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    path = tmp_path / "file"
    path.write_bytes(content)
    assert digest(path, "md5") == hashlib.md5(content).hexdigest()
    assert digest(path, "sha256") == sha256(content) == hashlib.sha256(content).hexdigest()


def test_another_checksum_than_expected_names_the_file_both_sums_and_a_remedy() -> None:
    expect(Path("data.gz"), "md5", ABC, ABC)
    with pytest.raises(Damaged) as caught:
        expect(Path("data.gz"), "md5", ABC, "0" * 32)
    said = f"data.gz is damaged: its content has md5 {ABC}, expected {'0' * 32}; replace it with an undamaged copy"
    assert str(caught.value) == said
    assert caught.value.path == Path("data.gz")
    assert isinstance(caught.value, ValueError)


def test_data_folder_is_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ALTMIN_DATA", raising=False)
    assert data_folder() == cache_folder() == tmp_path / "cache" / "altmin"
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path / "env"))
    assert data_folder() == tmp_path / "env"
    assert data_folder(tmp_path) == data_folder(str(tmp_path)) == tmp_path
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "altmin"


def test_a_folder_without_write_bits_is_left_alone_even_by_root(tmp_path):
    assert writable(tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    assert not writable(locked)
    with pytest.raises(PermissionError, match="locked, which is read-only; choose another"):
        prepare(locked / "new" / "folder")
    assert not (locked / "new").exists()


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


def test_in_a_pipe_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("file") as report:
        assert report is silent
        report(1, 2)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("total, shown", [(4_000_000, "1.0/4.0 MB"), (None, "1.0/? MB")])
def test_on_a_terminal_the_label_and_the_part_done_are_shown(
    total: int | None, shown: str, terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("images.gz") as report:
        report(1_000_000, total)
    said = capsys.readouterr()
    assert said.out == ""
    assert "images.gz" in said.err
    assert shown in said.err
