"""What a command leaves behind is whole, or is not there."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
import torch
import typer

from altmin import __version__
from altmin.cli import output


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_only_pictures_that_can_be_drawn_are_promised(name: str, tmp_path: Path) -> None:
    output.check_writable(picture=tmp_path / name)
    with pytest.raises(ValueError, match=r"a\.txt should end in \.png or \.svg or \.pdf"):
        output.check_writable(picture=Path("a.txt"))


def test_a_file_that_cannot_be_written_is_found_out_before_anything_runs(tmp_path: Path) -> None:
    output.check_writable(None, tmp_path / "new.json", Path(os.devnull))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PermissionError):
        output.check_writable(None, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere of a\.json does not exist"):
        output.check_writable(tmp_path / "nowhere" / "a.json")


def test_two_results_do_not_go_to_one_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a.json")
    with pytest.raises(ValueError, match=r"link and .*a\.json are the same file; give each result a file of its own"):
        output.check_writable(tmp_path / "a.json", None, tmp_path / "link")
    output.check_writable(Path(os.devnull), Path(os.devnull), tmp_path / "b.json")


def test_a_link_into_a_missing_folder_is_found_out_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere/a.json")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere of link does not exist"):
        output.check_writable(tmp_path / "link")


def test_json_is_written_whole_and_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output.write_json(None, {})
    output.write_json(tmp_path / "a.json", {"a": [1, 2]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1, 2]}
    assert capsys.readouterr().out == f"wrote {tmp_path / 'a.json'}\n"


def test_runs_that_diverged_are_named_and_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    output.report_failures({"seed 0": None})
    with pytest.raises(typer.Exit) as caught:
        output.report_failures({"seed 0": None, "seed 1": "too fast"})
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "altmin: seed 1: too fast\n"


def test_progress_is_drawn_on_a_terminal_and_not_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for screen, drawn in (Terminal(), True), (io.StringIO(), False):
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("TERM", "xterm")
        with output.progress("training") as tick:
            tick(3, 8, "loss 0.5")
        assert ("3/8 loss 0.5" in screen.getvalue()) is drawn


def test_the_environment_names_versions_and_the_machine() -> None:
    found = output.environment(torch.device("cpu"))
    assert list(found) == ["python", "torch", "altmin", "platform", "cpu", "gpu", "threads", "deterministic"]
    assert (found["torch"], found["altmin"], found["gpu"]) == (torch.__version__, __version__, None)
    assert found["threads"] == torch.get_num_threads()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is of Linux")
def test_a_stream_that_takes_nothing_is_named() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        output.write(Path("/dev/full"), b"result")
