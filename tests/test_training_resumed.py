"""A checkpoint whose numbers cannot be those of the run is refused, though its digest is right; nothing changes."""

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
    "epoch below": (
        lambda s: s["at"].update(epoch=-1),
        "epoch of at of the run must be a whole number of at least 0, given -1",
    ),
    "epoch beyond": (lambda s: s["at"].update(epoch=4), "it holds 4 epochs, more than 3"),
    "half an epoch": (lambda s: s["at"].update(epoch=0.5), "epoch of at of the run must be a whole number"),
    "batch below": (
        lambda s: s["at"].update(batch=-2),
        "batch of at of the run must be a whole number of at least 0, given -2",
    ),
    "batch beyond": (lambda s: s["at"].update(batch=5), "1 epochs, 5 batches in them and 5 after are not of this run"),
    "before": (lambda s: s["at"].update(before=4), "1 epochs, 4 batches in them and 2 after are not of this run"),
    "seconds": (lambda s: s["at"].update(seconds=math.nan), "seconds of at of the run must be a finite number"),
    "losses": (lambda s: s["at"].update(losses=[1.0, 2.0]), "losses of at of the run must be 1 entries"),
    "loss": (lambda s: s["at"].update(losses=[math.inf]), "entry 0 of losses of at of the run must be a finite"),
    "no batch": (lambda s: s["at"].pop("batch"), "not the state of at of the run: it lacks batch"),
    "no rows": (lambda s: s["history"]["epochs"].clear(), r"epochs of the history must be 1 entries, given \[\]"),
    "extra row": (lambda s: s["history"]["batches"].append({}), "batches of the history must be 2 entries"),
    "rows": (lambda s: s["history"].update(epochs=5), "epochs of the history must be 1 entries, given 5"),
    "row's batch": (
        lambda s: s["history"]["batches"][1].update(batch=8),
        r"not of a run that has done 7 batches, evaluated after \[2, 7\]",
    ),
    "row's loss": (
        lambda s: s["history"]["epochs"][0].update(train_loss=math.nan),
        "train_loss of entry 0 of epochs of the history must be a finite number",
    ),
    "row's measure": (
        lambda s: s["history"]["epochs"][0].update(test_accuracy="x"),
        "test_accuracy of entry 0 of epochs of the history must be",
    ),
    "row's entries": (
        lambda s: s["history"]["epochs"][0].pop("seconds"),
        "entry 0 of epochs of the history: it lacks seconds",
    ),
    "rate not finite": (lambda s: rates(s, math.nan), "lr of entry 0 of param_groups of .* must be a finite number"),
    "weights": (
        lambda s: s["model"]["0.weight"].fill_(math.nan),
        "0.weight of model of the run holds numbers that are not",
    ),
    "shape": (
        lambda s: s["model"].update({"0.bias": torch.zeros(3)}),
        "0.bias of model of the run must be torch.float32",
    ),
    "moments": (lambda s: moments(s, torch.zeros(1)), "exp_avg of parameter 0 of .* must be torch.float32 of shape"),
    "random": (
        lambda s: s["random"].update(cpu=torch.zeros(3)),
        "cpu of random of the run must be torch.uint8 of shape",
    ),
    "random bytes": (
        lambda s: s["random"].update(cpu=torch.zeros(7, dtype=torch.uint8)),
        "cpu of random of the run must be torch.uint8 of shape",
    ),
    "random state": (lambda s: s["random"]["cpu"].fill_(255), "does not fit this run: .*mt19937"),
    "no random": (lambda s: s["random"].clear(), "not the state of random of the run: it lacks cpu"),
    "part": (lambda s: s.pop("random"), "not the state of the run: it lacks random"),
    "callbacks": (lambda s: s.update(callbacks=[{}]), r"callbacks of the run must be 0 entries, given \[{}\]"),
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


def test_a_finished_run_has_no_batch_under_way(state: State, tmp_path: Path) -> None:
    wrong = copy.deepcopy(state)
    wrong["at"].update(epoch=3, batch=1)
    checkpoint.save(tmp_path / "run", wrong)
    with pytest.raises(ValueError, match="3 epochs, 5 batches in them and 1 after are not of this run"):
        fit(learner(), problem(), problem(40, 1), **SETTINGS, checkpoint=tmp_path / "run", resume=True)
