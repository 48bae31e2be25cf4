"""A short run of the trial of command lines, and what it takes for a fault."""

from pathlib import Path
from random import Random

import pytest
from trial import commands
from trial.commands import Ended


def test_every_command_does_what_it_promises_or_says_in_one_line_why_not() -> None:
    failures: list[str] = []
    counters = commands.trial(14, 6, failures)
    assert failures == []
    assert counters["command lines"] == 14
    assert counters["in a process"] == 1
    assert min(counters["done"], counters["refused"]) > 2


def test_command_lines_are_of_every_kind() -> None:
    first = {" ".join(line[:1]) for line in (commands.draw(Random(seed)) for seed in range(300))}
    assert {"train", "compare", "bench", "theory", "data", "trian"} <= first


LINE = ["train", "--json", "new.json"]
FAULTS: dict[str, tuple[Ended, dict[str, bytes], str]] = {
    "a defect": (Ended(RuntimeError("a defect"), "", ""), {}, "ended with RuntimeError"),
    "another code": (Ended(3, "", "altmin: this is a clear line\n"), {}, "ended with 3"),
    "a traceback": (Ended(1, "", "Traceback (most recent call last)\n"), {}, "showed a traceback"),
    "no word": (Ended(2, "", ""), {}, "other than one clear line"),
    "two lines": (Ended(2, "", "altmin: one clear line\naltmin: and another\n"), {}, "other than one clear line"),
    "torch's words": (Ended(2, "", "altmin: Overflow when unpacking long long\n"), {}, "not the library's"),
    "no result": (Ended(0, "", ""), {}, "did not write new.json"),
    "half a result": (Ended(0, "", ""), {"new.json": b'{"a": '}, "which is no JSON"),
    "NaN in a result": (Ended(0, "", ""), {"new.json": b'{"a": NaN}'}, "which is no JSON"),
    "a file too many": (Ended(0, "", ""), {"new.json": b"{}", "tmp123": b""}, "left or changed ['tmp123']"),
    "a file of a refusal": (Ended(2, "", "altmin: one clear line\n"), {"new.json": b"{}"}, "was refused but wrote"),
    "a complaint": (Ended(0, "", "altmin: it went wrong\n"), {"new.json": b"{}"}, "ended well but complained"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_command_leaves_or_says_wrongly_is_a_fault(name: str, tmp_path: Path) -> None:
    ended, files, words = FAULTS[name]
    commands.prepare(tmp_path)
    before = commands.contents(tmp_path)
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    assert any(words in each for each in commands.faults(LINE, ended, before, tmp_path))


def test_a_command_that_keeps_its_promise_has_none(tmp_path: Path) -> None:
    commands.prepare(tmp_path)
    before = commands.contents(tmp_path)
    assert commands.faults(LINE, Ended(2, "", "altmin: one clear line\n"), before, tmp_path) == []
    (tmp_path / "new.json").write_bytes(b"{}")
    assert commands.faults(LINE, Ended(0, "done", "altmin: note: slow\n"), before, tmp_path) == []
