"""The trial's judges, which decide what a failure is. The trial itself is `make trial`."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn
from trial import api, commands, estimators, networks, networks_drawn, runners
from trial.commands import Ended
from trial.judge import Judge
from trial.networks_writer import Source, Value, Writer
from trial.runner import count_of

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


SHAPES = {"vectors": (6, 3), "sequences": (6, 3, 3), "images": (6, 2, 4, 4)}
FRAGMENTS = [
    (kind[of][name], shape)
    for kind in (networks_drawn.LAYERS, networks_drawn.PYTHON)
    for shape in SHAPES
    for of in (shape, *(("every", "features") if shape == "vectors" else ()))
    for name in kind[of]
]


def written(text: str, shape: tuple[int, ...], first: bool) -> networks_drawn.Network:
    """A network of one fragment; first: with no layer before it."""
    w = Writer(Source(Random(0)))
    x = Value("x", shape) if first else networks_drawn._widened(w, Value("x", shape), 0.0)
    y = networks_drawn._head(w, w.write("fragment", text, x), 0.0)
    sizes = ", ".join(map(str, ("n", *shape[1:])))
    loss = networks_drawn._loss(w, y)
    inputs = f"inputs = lambda n: torch.randn({sizes}, dtype=torch.float64)"
    net = w.text("Net", "nn.Module", "self, x", y.name)
    lines = [networks_drawn.HEADER, *w.source.top, net, "model = Net()", "fill(model)", *w.source.after, *loss, inputs]
    lines.append("def between(): pass")
    return networks_drawn.Network("\n".join(lines), [(6, 3)], [])


@pytest.mark.filterwarnings("ignore")
def test_every_fragment_makes_a_network_that_autograd_trains() -> None:
    for text, shape in FRAGMENTS:
        found = []
        for first in (False, True):
            with contextlib.suppress(RuntimeError):  # autograd refuses to change in place what some layers keep
                found += networks.by_autograd(written(text, SHAPES[shape], first), 0)
        assert any(map(networks.tame, found)), text


@pytest.mark.parametrize("spoilt", ["learning rate", "loss"])
def test_a_network_whose_step_departs_from_autograd_is_a_failure(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "module: $f = nn.Linear($W, $W)\n$y = torch.tanh($f($x))"
    network, failures = written(text, SHAPES["vectors"], False), list[str]()
    wanted = networks.by_autograd(network, 0)
    judge = networks.NetworkJudge("case", failures)
    networks.compare(network, 0, wanted, judge)
    assert (failures, judge.compared) == ([], 1)
    if spoilt == "loss":
        wanted = [dataclasses.replace(wanted[0], loss=wanted[0].loss * 1.001)]
    else:
        sgd = altmin.LocalSGD
        monkeypatch.setattr(altmin, "LocalSGD", lambda lr, momentum: sgd(lr * 1.001, momentum))
    networks.compare(network, 0, wanted, judge)
    assert len(failures) == 1
    assert ("loss " if spoilt == "loss" else "weight off by") in failures[0]


class Careless(estimators.OnlineClassifier):
    """A classifier with one defect."""

    defect = ""

    def learn_one(self, x: Any, y: Any) -> None:
        if self.defect == "moves first":
            self._statistics.total += 1
        super().learn_one(x, None if self.defect == "refuses all" else y)

    def predict_proba_one(self, x: Any, **kwargs: Any) -> Any:
        if self.defect == "counts queries":
            self._statistics.total += 1
        found = super().predict_proba_one(x, **kwargs)
        return dict.fromkeys(found, float("nan")) if self.defect == "NaN" else found


@pytest.mark.parametrize(
    "defect, words",
    [
        ("", ""),
        ("moves first", "was refused but has changed the state"),
        ("refuses all", "was refused though nothing is wrong with it"),
        ("counts queries", "has changed the estimator"),
        ("NaN", "gave numbers that are not finite"),
    ],
)
def test_an_estimator_fails_by_what_a_call_leaves(defect: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Careless, "defect", defect)
    monkeypatch.setattr(estimators, "OnlineClassifier", Careless)
    failures: list[str] = []
    estimators.trial(200, 0, failures)
    assert any(words in each for each in failures) if words else failures == []


@pytest.mark.filterwarnings("ignore")
def test_networks_written_at_random_are_trained_as_by_autograd_or_refused() -> None:
    failures: list[str] = []
    counters = networks.trial(count_of("networks", "short"), 0, failures)
    assert failures == []
    assert counters["steps as backprop's"] > 200  # not all are refused


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
