"""Trained models in files: weights, and all that is needed to predict with them, in one file."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from altmin import models
from altmin.common.state import matched
from altmin.training import checkpoint

KIND = "model"
TYPES = {"model": str, "data": str, "sample_shape": tuple, "outputs": int, "tokens": bool, "table": dict | None}
"""Entries of every description and their types."""
LARGEST = 1 << 24
"""Numbers that a sample may have."""


def save(path: str | Path, network: nn.Module, about: Mapping[str, Any]) -> None:
    """Write a network, whole or not at all, and its description: `model`, its name as `altmin.models.create` knows
    it; `data`, the name of the data set or of the table's file; `sample_shape`; `outputs`; `tokens`, if its samples are
    some; and for a table `table`, how its rows become samples, as `altmin.sklearn.table_model.describe` gives it."""
    checkpoint.save(path, {"kind": KIND, "tokens": False, "table": None, **about, "weights": network.state_dict()})


def load(path: str | Path, model: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network in a file, on the CPU and in evaluation mode, and its description.

    model: the name MODULE:FUNCTION of a model of your own. A file cannot have code imported by itself: ValueError if it
    holds such a model and this is not given; also for a file of another kind, for weights that do not fit or are not
    finite, and for the name of a model that is larger than the file, which is not made.
    """
    state = checkpoint.load(path)
    if not isinstance(state, dict) or state.get("kind") != KIND:
        raise ValueError(f"{path} is no model that altmin train --save-model wrote")
    for key, expected in TYPES.items():
        if not isinstance(state.get(key, ...), expected):
            raise ValueError(f"{path} is damaged: its {key} is {state.get(key)!r:.60}")
    shape, outputs, weights = state["sample_shape"], state["outputs"], state.pop("weights", None)
    if not all(type(n) is int and n > 0 for n in (*shape, outputs)) or math.prod(shape) > LARGEST:
        raise ValueError(f"{path} is damaged: its model has {outputs} outputs for samples of shape {shape!r:.60}")
    if ":" in state["model"] and model is None:
        name = state["model"]
        raise ValueError(f"{path} holds the weights of {name}, which is code of your own; give --model {name}")
    name = model or state["model"]
    network = models.create(name, shape, outputs, state["tokens"]) if ":" in name else _empty(path, name, state)
    try:
        network.load_state_dict(matched(weights, network.state_dict(), name), assign=":" not in name)
    except ValueError as error:
        raise ValueError(f"the weights in {path} do not fit the model {name}: {error!s:.200}") from None
    if wrong := [key for key, t in network.state_dict().items() if isinstance(t, Tensor) and not t.isfinite().all()]:
        raise ValueError(f"{wrong[0]} in {path} has weights that are not finite; train the model again")
    return network.eval(), state


def _empty(path: str | Path, name: str, state: Mapping[str, Any]) -> nn.Module:
    """Return a model without memory for its weights. ValueError if these would be larger than the file."""
    size = os.path.getsize(path)
    if all(int(number) <= size for number in re.findall(r"\d+", name)) and state["outputs"] <= size:
        with torch.device("meta"):
            network = models.create(name, state["sample_shape"], state["outputs"], state["tokens"])
        if sum(t.nbytes for t in network.state_dict().values()) <= size:
            return network
    raise ValueError(f"{path} is too small for the weights of {name}, the model that it names")
