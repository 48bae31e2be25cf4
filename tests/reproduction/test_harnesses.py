"""Trials in harnesses of others: what is missing is named, and theirs agree with ours where both measure the same."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

from altmin import continual, data, models
from reproduction.harnesses.packages import Unused, without_unused
from reproduction.measurements import harnesses
from reproduction.measurements.harnesses import PACKAGES, TASKS, TRACKED, Trial
from reproduction.results import Setting
from reproduction.streams import create, progressive, samples

HERE = Setting(torch.device("cpu"))


def row(trial: Trial) -> dict[str, object]:
    if missing := trial.lacking(HERE):
        pytest.skip(missing)
    return trial.make([0], HERE, lambda *_: None)[0]


def test_a_missing_harness_is_named_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "river", "no_such_harness.part")
    trial = replace(TRACKED[0], settings={**TRACKED[0].settings, "package": "river"})
    expected = 'a trial in no_such_harness needs no_such_harness, which is not installed: pip install ".[harnesses]"'
    assert trial.lacking(HERE) == expected


def test_modules_that_no_trial_uses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("wandb")]:
        monkeypatch.delitem(sys.modules, name)
    with without_unused():
        module = import_module("wandb.plot")
        assert isinstance(module, Unused)
        assert module.Anything(1, option=2)(3) is None
    assert not {"wandb", "wandb.plot"} & set(sys.modules)


def test_all_that_a_result_depends_on_is_in_its_config() -> None:
    runs = harnesses.FIGURES[0].runs
    configs = [json.dumps(run.config(), sort_keys=True) for run in runs]
    assert len(set(configs)) == len(runs)


@pytest.mark.slow
def test_a_track_of_river_scores_as_our_loop_does() -> None:
    found = row(next(trial for trial in TRACKED if trial["data"] == "Phishing"))
    given = samples("phishing", 0)
    value = progressive(create("Gauss-Newton", False, 0), given, False)["value"]
    scored = len(given) - 1  # river's loop scores no sample for which there was no prediction yet
    assert found["value"] == pytest.approx(value * len(given) / scored, abs=1e-5)


@pytest.mark.slow
def test_ridge_in_tasks_of_avalanche_is_ridge_on_all_samples() -> None:
    found = row(next(trial.reduced() for trial in TASKS if "ridge" in trial.options["learner"]))
    (x, y), (tested, labels) = ((x[:2000].flatten(1), y[:2000]) for x, y in map(load, ("train", "test")))
    torch.manual_seed(0)
    learner = continual.create("ridge", models.mlp(784, (1180,), 10))
    learner.step(x, y)
    learner.end_epoch()
    right = (learner.model(tested).argmax(1) == labels).float().mean()
    assert found["accuracy"] == pytest.approx(float(right), abs=1e-3)


def load(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    return data.load("mnist", part)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "words", "good"),
    [
        ("lightbench", "class_imbalance_rare/trivial/CoActivation/0.004", lambda row: row["passed"]),
        ("capymoa", "SEA/altmin.stream", lambda row: row["value"] > 0.7),
    ],
)
def test_a_harness_with_state_of_its_own_runs_ours(package: str, words: str, good: object, tmp_path: Path) -> None:
    """In a process of its own: LightBench sets torch's flags, CapyMOA starts Java."""
    command = [sys.executable, "-m", "reproduction", "figure", "harnesses", "--quick", "--only", words]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, env=paths)
    if "not made" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    (found,) = map(json.loads, (tmp_path / "harnesses-quick.jsonl").read_text().splitlines())
    assert callable(good)
    assert good(found), found
