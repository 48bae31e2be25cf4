"""A checkpoint of which a part does not load is refused, though its digest is right, and nothing changes."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_training_run import SETTINGS, learner, problem, stop_at
from trainer_cases import equal

from altmin.training import EachBatch, checkpoint, fit

State = dict[str, Any]

EDITS: dict[str, tuple[Callable[[State], Any], str]] = {
    "epoch below": (lambda s: s["at"].update(epoch=-1), "epoch of at of the run must be a whole number of at least 0"),
    "epoch beyond": (lambda s: s["at"].update(epoch=4), "it holds 4 epochs, more than 3"),
    "rate not finite": (lambda s: rates(s, math.nan), "lr of entry 0 of param_groups of .* must be a finite number"),
    "weights": (
        lambda s: s["model"]["0.weight"].fill_(math.nan),
        "0.weight of model of the run holds numbers",
    ),
    "shape": (lambda s: s["model"].update({"0.bias": torch.zeros(3)}), "0.bias of model of the run must be"),
    "moments": (lambda s: moments(s, torch.zeros(1)), "exp_avg of parameter 0 of .* must be torch.float32 of shape"),
    "random state": (lambda s: s["random"]["cpu"].fill_(255), "does not fit this run: .*mt19937"),
    "part": (lambda s: s.pop("random"), "not the state of the run: it lacks random"),
    "method": (lambda s: s.update(method=[]), r"the state of Backprop is a dict, given \[\]"),
    "config": (lambda s: s.update(config=3), "it has no settings to compare"),
}


def rates(state: State, lr: float) -> None:
    state["method"]["optimizer"]["param_groups"][0]["lr"] = lr


def moments(state: State, value: torch.Tensor) -> None:
    state["method"]["optimizer"]["state"][0]["exp_avg"] = value


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    path = tmp_path_factory.mktemp("resumed") / "run"
    kept = {**SETTINGS, "checkpoint": path, "checkpoint_every": 1}
    with pytest.raises(ZeroDivisionError):
        fit(learner(), problem(), problem(40, 1), **kept, callbacks=[EachBatch(stop_at(7, ZeroDivisionError()))])
    return checkpoint.load(path)


@pytest.mark.parametrize("edit", EDITS)
def test_what_cannot_be_of_this_run_is_refused_and_changes_nothing(edit: str, state: State, tmp_path: Path) -> None:
    change, message = EDITS[edit]
    wrong = copy.deepcopy(state)
    change(wrong)
    checkpoint.save(tmp_path / "run", wrong)
    method = learner(seed=5)
    method.step(*problem(20))
    before = copy.deepcopy((method.model.state_dict(), method.state_dict(), torch.get_rng_state()))
    with pytest.raises(ValueError, match=message) as error:
        fit(method, problem(), problem(40, 1), **SETTINGS, checkpoint=tmp_path / "run", resume=True)
    assert "\n" not in str(error.value)
    assert equal((method.model.state_dict(), method.state_dict(), torch.get_rng_state()), before)
