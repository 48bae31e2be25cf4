"""The state of a run, which a checkpoint holds: what it is, what it must be for a run to go on from it, and how."""

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from altmin.common.state import fitted, module_form, unchecked
from altmin.training.checkpoint import CheckpointFile
from altmin.training.loop import History, Loop, Position


def state_of(loop: Loop, method: Any) -> dict[str, Any]:
    """All that a run needs to go on from where it is."""
    random = {"cpu": torch.get_rng_state()}
    if loop.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(loop.device)
    return {
        "at": asdict(loop.at),
        "history": asdict(loop.histories[0]),
        "model": method.model.state_dict(),
        "method": method.state_dict(),
        "schedule": loop.schedule.state_dict(),
        "callbacks": loop.callbacks.state(),
        "random": random,
        "data": loop.data.state(),
    }


def restore(loop: Loop, method: Any, file: CheckpointFile) -> None:
    """Goes to where the checkpoint was written; if it does not fit, a `ValueError` that leaves all as it is."""
    state, before = file.load(loop.device), copy.deepcopy(state_of(loop, method))
    try:
        _load(_fitted(state, before, loop, method), loop, method)
    except Exception as error:
        _load(before, loop, method)  # a part may check as it loads
        raise ValueError(f"{file.path} does not fit this run: {' '.join(str(error).split())}") from error
    file.written = True


def _load(state: dict[str, Any], loop: Loop, method: Any) -> None:
    method.load_state_dict(state["method"])
    loop.callbacks.load(state["callbacks"])
    method.model.load_state_dict(state["model"])
    loop.schedule.load_state_dict(state["schedule"])
    loop.data.load(state["data"])
    loop.at, loop.histories[0] = Position(**state["at"]), History(**state["history"])
    torch.set_rng_state(state["random"]["cpu"])
    if loop.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), loop.device)


def _fitted(state: Any, own: dict[str, Any], loop: Loop, method: Any) -> dict[str, Any]:
    """A copy of a run's state; ValueError if anything of it does not fit the run, whose present state is `own`. What
    only method, schedule and callbacks know shows when they load their parts."""
    form = {**own, "config": unchecked, "history": unchecked, "method": unchecked, "model": module_form(method.model)}
    form["schedule"] = dict.fromkeys(own["schedule"], unchecked)
    form["callbacks"] = [unchecked] * len(own["callbacks"])
    form["random"] = partial(_fitted_random, own=own["random"])
    new: dict[str, Any] = fitted(state, form, "the run")
    _check_history(new["history"], loop, Position(**new["at"]))
    return new


def _fitted_random(state: Any, what: str, own: dict[str, Any]) -> Any:
    """Random numbers of the CPU and, if it was written there, of a GPU, which need not be here."""
    there = "cuda" if isinstance(state, Mapping) and "cuda" in state else "cpu"
    return fitted(state, {name: own.get(name, unchecked) for name in ("cpu", there)}, what)


def _check_history(state: Any, loop: Loop, at: Position) -> None:
    """The position and the rows are such as the loop would have come to."""
    if at.epoch > loop.epochs:
        raise ValueError(f"it holds {at.epoch} epochs, more than {loop.epochs}")
    last = (loop.per_epoch or 1) if at.epoch < loop.epochs and loop.data.resumes else 1
    if at.batch >= last or (loop.per_epoch is not None and at.before != at.epoch * loop.per_epoch):
        raise ValueError(f"{at.epoch} epochs, {at.before} batches in them and {at.batch} after are not of this run")
    done, measured = at.before + at.batch, dict.fromkeys(loop.columns, math.nan)  # a metric may have no value
    evaluated = [number for number in loop.eval_batches if number <= done]
    epochs = [{"epoch": n + 1, "train_loss": 0.0, "seconds": 0.0, **measured} for n in range(at.epoch)]
    rows = {"batches": [{"batch": n, **measured} for n in evaluated], "epochs": epochs}
    fitted(state, rows, "the history")
    if [row["batch"] for row in state["batches"]] != evaluated:
        raise ValueError(f"the history is not of a run that has done {done} batches, evaluated after {evaluated}")
