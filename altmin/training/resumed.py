"""What the state in a run's checkpoint must be for the run to go on from it."""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from altmin.common.state import check_module, demand_count, demand_entries, demand_number
from altmin.training.loop import History, Loop, Position

ENTRIES = ("config", "at", "history", "model", "method", "schedule", "callbacks", "random", "data")


def check(state: Any, loop: Loop, method: Any) -> tuple[Position, History]:
    """Where the run goes on, and its rows until there. ValueError if anything of the state does not fit the run; that
    changes nothing. What only a method without a `check_state` knows shows when it loads its part."""
    demand_entries(state, ENTRIES, "a run")
    at = _position(state["at"], loop)
    history = _history(state["history"], loop, at)
    check_module(method.model, state["model"])
    if hasattr(method, "check_state"):
        method.check_state(state["method"])
    demand_entries(state["schedule"], loop.schedule.state_dict(), "what moves the learning rate")
    for group in _groups(state["method"]):
        _check_rates(group, loop, at, state["schedule"])
    _check_random(state["random"], loop.device)
    for name, number in (("callbacks", len(loop.callbacks.kept)), ("data", len(loop.data.state()))):
        if not isinstance(state[name], list) or len(state[name]) != number:
            raise ValueError(f"the state of the {name} must be a list of {number}, given {state[name]!r:.40}")
    for own in state["data"]:
        _check_random({"cpu": own}, torch.device("cpu"))
    return at, history


def _position(state: Any, loop: Loop) -> Position:
    demand_entries(state, [field.name for field in fields(Position)], "a position")
    epoch = demand_count(state["epoch"], "the number of epochs done")
    if epoch > loop.epochs:
        raise ValueError(f"it holds {epoch} epochs, more than {loop.epochs}")
    inside = epoch < loop.epochs and loop.data.resumes
    batch = demand_count(state["batch"], "the number of batches done", 0, (loop.per_epoch or 1) if inside else 1)
    before = demand_count(state["before"], "the number of batches in epochs done")
    if loop.per_epoch is not None and before != epoch * loop.per_epoch:
        raise ValueError(f"{epoch} epochs have {epoch * loop.per_epoch} batches, the state says {before}")
    if not isinstance(state["losses"], list) or len(state["losses"]) != len(loop.seeds):
        raise ValueError(f"the losses of the epoch must be {len(loop.seeds)}, given {state['losses']!r:.40}")
    losses = [demand_number(loss, "the sum of the epoch's losses") for loss in state["losses"]]
    return Position(losses, epoch, before, batch, demand_number(state["seconds"], "the epoch's seconds", 0.0))


def _history(state: Any, loop: Loop, at: Position) -> History:
    """Rows as the loop would have written them."""
    demand_entries(state, [field.name for field in fields(History)], "a history")
    done, measured = at.before + at.batch, loop.columns
    expected = {
        "epochs": ("epoch", ["train_loss", "seconds", *measured], list(range(1, at.epoch + 1))),
        "batches": ("batch", measured, [number for number in loop.eval_batches if number <= done]),
    }
    for name, (counted, others, numbers) in expected.items():
        rows = state[name]
        if not isinstance(rows, list) or len(rows) != len(numbers):
            given = len(rows) if isinstance(rows, list) else "no"
            raise ValueError(f"{given} rows of {name} do not belong to a run that has done {done} batches")
        for row, number in zip(rows, numbers, strict=True):
            demand_entries(row, [counted, *others], f"a row of {name}")
            if demand_count(row[counted], f"the {counted} of a row") != number:
                raise ValueError(f"{counted} {number} must come next among the rows of {name}, given {row[counted]}")
            for key in ("train_loss", "seconds"):
                if key in row:
                    demand_number(row[key], f"{key} of {counted} {number}", 0.0 if key == "seconds" else -math.inf)
            for key in measured:
                if isinstance(row[key], bool) or not isinstance(row[key], int | float | Tensor):
                    raise ValueError(f"{key} of {counted} {number} must be a number, given {row[key]!r:.40}")
    return History(**state)


def _groups(state: Any) -> Iterator[list[Any]]:
    """Every optimizer's groups in a method's state."""
    for name, value in state.items() if isinstance(state, dict) else ():
        if name == "param_groups" and isinstance(value, list):
            yield value
        else:
            yield from _groups(value)


def _check_rates(groups: list[Any], loop: Loop, at: Position, state: Any) -> None:
    """An optimizer's rates are those of the schedule there. state: that of the schedule."""
    rates = loop.schedule.rates(state, at.before + at.batch, at.epoch)
    if len(groups) != len(rates):
        return
    for n, (group, expected) in enumerate(zip(groups, rates, strict=True)):
        rate = demand_number(group["lr"], f"lr of group {n} of the optimizer", 0.0)
        if not math.isclose(rate, expected, rel_tol=1e-6, abs_tol=1e-12):
            raise ValueError(f"lr of group {n} of the optimizer is {rate:g}, by the schedule it is {expected:g}")


def _check_random(state: Any, device: torch.device) -> None:
    """Random states that generators take."""
    if not isinstance(state, dict) or not {"cpu"} <= set(state) <= {"cpu", "cuda"}:
        raise ValueError("the state of the random numbers must be of the CPU, and of CUDA if need be")
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.dtype != torch.uint8:
            raise ValueError(f"the state of random numbers on {name} must be bytes")
        if name == device.type or name == "cpu":
            try:
                torch.Generator(device if name == "cuda" else "cpu").set_state(value.cpu())
            except (RuntimeError, TypeError) as error:
                raise ValueError(f"the state of random numbers on {name} is not one that a generator takes") from error
