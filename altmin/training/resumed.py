"""The state of a run, which a checkpoint holds: what it is, what it must be for a run to go on from it, and how."""

import copy
import math
from dataclasses import asdict
from typing import Any

import torch

from altmin.common.state import check_like, check_module, demand_entries
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
    loading = False
    try:
        check(state, before, loop, method)
        loading = True
        _load(state, loop, method)
    except Exception as error:
        if loading:  # of a part that checks as it loads
            _load(before, loop, method)
        raise ValueError(f"{file.path} does not fit this run: {' '.join(str(error).split())}") from error
    file.written = True


def _load(state: dict[str, Any], loop: Loop, method: Any) -> None:
    loop.callbacks.load(state["callbacks"])
    method.model.load_state_dict(state["model"])
    method.load_state_dict(state["method"])
    loop.schedule.load_state_dict(state["schedule"])
    loop.data.load(state["data"])
    loop.at, loop.histories[0] = Position(**state["at"]), History(**state["history"])
    torch.set_rng_state(state["random"]["cpu"])
    if loop.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), loop.device)


def check(state: Any, own: dict[str, Any], loop: Loop, method: Any) -> None:
    """ValueError if anything of a state does not fit the run, whose present state is `own`; nothing changes. What only
    a method without a `check_state`, or a callback, knows shows when it loads its part."""
    demand_entries(state, ("config", *own), "a run")
    check_like(state["at"], own["at"], "the run's position")
    _check_history(state["history"], loop, Position(**state["at"]))
    check_module(method.model, state["model"])
    if hasattr(method, "check_state"):
        method.check_state(state["method"])
    demand_entries(state["schedule"], own["schedule"], "what moves the learning rate")
    demand_entries(state["random"], {"cpu", *state["random"]} & {"cpu", "cuda"}, "random numbers")
    for name, value in own["random"].items():
        check_like(state["random"].get(name, value), value, f"the state of random numbers on {name}")
    check_like(state["data"], own["data"], "the state of the data")
    if not isinstance(state["callbacks"], list) or len(state["callbacks"]) != len(own["callbacks"]):
        raise ValueError(f"the state of {len(own['callbacks'])} callbacks is a list, given {state['callbacks']!r:.40}")


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
    check_like(state, rows, "the history")
    if [row["batch"] for row in state["batches"]] != evaluated:
        raise ValueError(f"the history is not of a run that has done {done} batches, evaluated after {evaluated}")
