"""The trial's judges, which decide what a failure is. The trial itself is `make trial`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trial import api, commands, runners
from trial.commands import Ended
from trial.judge import Judge

import altmin

MODEL = nn.Linear(2, 2)


def spoiling(value: float | None = None, error: Exception | None = None) -> Callable[[], Any]:
    def call() -> None:
        if value is not None:
            torch.nn.init.constant_(MODEL.bias, value)
        if error:
            raise error

    return call


CLEAR = ValueError("share lies between 0 and 1, given 2")
JUDGED: list[tuple[Callable[[], Any], bool, str]] = [
    (spoiling(error=CLEAR), False, ""),
    (spoiling(error=altmin.Diverged("the objective")), False, ""),
    (spoiling(3.0), False, ""),
    (spoiling(error=KeyError("weights")), False, "raised KeyError"),
    (spoiling(error=ValueError("no")), False, "other than one line"),
    (spoiling(error=ValueError("two lines,\nof which one is torch's")), False, "other than one line"),
    (spoiling(error=TypeError("'<=' not supported between instances")), False, "not the library's"),
    (spoiling(error=ValueError("mat1 and mat2 shapes cannot be multiplied")), False, "not the library's"),
    (spoiling(4.0, CLEAR), False, "has changed the state"),
    (spoiling(5.0), True, "changed its arguments"),
    (spoiling(float("nan")), False, "not finite"),
]


@pytest.mark.parametrize("call, is_argument, words", JUDGED)
def test_a_call_fails_by_an_unclear_refusal_or_a_change_it_must_not_make(
    call: Callable[[], Any], is_argument: bool, words: str
) -> None:
    failures: list[str] = []
    torch.nn.init.zeros_(MODEL.bias)
    Judge("case", failures).call("step", call, lambda: None if is_argument else MODEL, (MODEL,) if is_argument else ())
    assert len(failures) == bool(words)
    assert all(words in each for each in failures)


def test_a_step_that_departs_from_backprop_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    sgd = altmin.LocalSGD
    monkeypatch.setattr(altmin, "LocalSGD", lambda lr, momentum: sgd(lr * 1.001, momentum))
    failures: list[str] = []
    api.trial(200, 0, failures)
    assert any("departs from backprop" in each for each in failures)


REFUSAL = Ended(2, "", "altmin: one clear line\n")
FAULTS: dict[str, tuple[Ended, dict[str, bytes], str]] = {
    "a refusal": (REFUSAL, {}, ""),
    "a result": (Ended(0, "done", "altmin: note: slow\n"), {"new.json": b"{}"}, ""),
    "a defect": (Ended(RuntimeError("a defect"), "", ""), {}, "ended with RuntimeError"),
    "another code": (Ended(3, "", "altmin: this is a clear line\n"), {}, "ended with 3"),
    "a traceback": (Ended(1, "", "Traceback (most recent call last)\n"), {}, "showed a traceback"),
    "no word": (Ended(2, "", ""), {}, "other than one clear line"),
    "two lines": (Ended(2, "", "altmin: one clear line\naltmin: and another\n"), {}, "other than one clear line"),
    "torch's words": (Ended(2, "", "altmin: Overflow when unpacking long long\n"), {}, "not the library's"),
    "no result": (Ended(0, "", ""), {}, "did not write new.json"),
    "NaN in a result": (Ended(0, "", ""), {"new.json": b'{"a": NaN}'}, "which is no JSON"),
    "a file too many": (Ended(0, "", ""), {"new.json": b"{}", "tmp123": b""}, "left or changed ['tmp123']"),
    "a file of a refusal": (REFUSAL, {"new.json": b"{}"}, "was refused but wrote"),
    "a complaint": (Ended(0, "", "altmin: it went wrong\n"), {"new.json": b"{}"}, "ended well but complained"),
}


@pytest.mark.parametrize("ended, files, words", FAULTS.values(), ids=FAULTS)
def test_a_command_fails_by_what_it_leaves_or_says(
    ended: Ended, files: dict[str, bytes], words: str, tmp_path: Path
) -> None:
    commands.prepare(tmp_path)
    before = commands.contents(tmp_path)
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    found = commands.faults(["train", "--json", "new.json"], ended, before, tmp_path)
    assert any(words in each for each in found) if words else found == []


DONE, FAR = ("done", [torch.ones(2)]), ("done", [torch.tensor([1.0, 1.1])])
RUNS: dict[str, tuple[runners.Outcome, list[runners.Outcome], str]] = {
    "equal": (DONE, [DONE, DONE], ""),
    "far on one rank": (DONE, [DONE, FAR], "is 5.0e-02 from one process"),
    "refused by one rank": (DONE, [DONE, ("refused", "why")], "in different ways"),
    "refused by all": (DONE, [("refused", "why")] * 2, "refused what it should not: why"),
    "refused in one process too": (("refused", "why"), [("refused", "why")] * 2, ""),
    "refused in one process alone": (("refused", "why"), [DONE, DONE], "did what one process refuses"),
    "refused for what one process makes NaN of": (("done", [torch.tensor(torch.nan)]), [("refused", "why")] * 2, ""),
    "a defect": (DONE, [("failed", "raised KeyError"), DONE], "raised KeyError"),
}


@pytest.mark.parametrize("expected, found, words", RUNS.values(), ids=RUNS)
def test_a_runner_fails_by_departing_from_one_process(
    expected: runners.Outcome, found: list[runners.Outcome], words: str
) -> None:
    name, case = next(
        each for each in map(runners.drawn, range(99)) if each[0] == "rows over ranks" and each[1].network.divisible
    )
    said = runners.faults(name, case, expected, found)
    assert any(words in each for each in said) if words else said == []


def test_runners_compute_what_one_process_does_in_drawn_cases() -> None:
    failures: list[str] = []
    counters = runners.trial(12, 0, failures)
    assert failures == []
    assert counters["equal"] > counters["refused"]
