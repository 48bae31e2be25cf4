"""Trained models in files: weights, and all that is needed to predict with them, in one file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from altmin import models
from altmin.training import checkpoint

KIND = "model"


def save(path: str | Path, network: nn.Module, about: Mapping[str, Any]) -> None:
    """Write a network, whole or not at all, and what is said of it: `model`, its name as `altmin.models.create` knows
    it; `data`, the name of the data set or of the table's file; `sample_shape`; `outputs`; `tokens`, if its samples are
    some; and for a table `table`, how its rows become samples, as `altmin.sklearn.table_model.describe` gives it."""
    checkpoint.save(path, {"kind": KIND, "tokens": False, "table": None, **about, "weights": network.state_dict()})


def load(path: str | Path, own: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network in a file, on the CPU and for evaluation, and what is said of it.

    own: the name MODULE:FUNCTION of a model of one's own. A file cannot have code imported by itself: ValueError if it
    holds such a model and this is not given; also for a file of another kind, and for weights that do not fit.
    """
    state = checkpoint.load(path)
    if not isinstance(state, dict) or state.get("kind") != KIND:
        raise ValueError(f"{path} is no model that altmin train --save-model wrote")
    name = state["model"]
    if ":" in name and own is None:
        raise ValueError(f"{path} holds the weights of {name}, which is code of your own; give --model {name}")
    network = models.create(own or name, state["sample_shape"], state["outputs"], state["tokens"])
    try:
        network.load_state_dict(state.pop("weights"))
    except RuntimeError as error:
        words = " ".join(str(error).split())
        raise ValueError(f"the weights in {path} do not fit the model {own or name}: {words:.200}") from None
    return network.eval(), state
