"""Progress is shown on a terminal, and nothing in a pipe."""

import pytest

from altmin.data.progress import progress, silent


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
