"""Trained models in files: weights, and all that is needed to predict with them, in one file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from altmin import models
from altmin.data.tables import Encoding
from altmin.data.targets import Classes, Target
from altmin.training import checkpoint
from altmin.training.samples import device_of

KIND = "model"
ROWS = 1000
"""Samples that a model sees at once."""


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A network and what it was trained on.

    model: its name, as `altmin.models.create` knows it. data: the name of the data set, or of the table's file.
    encoding: how rows of a table become its inputs; None for a data set, whose samples are ready.
    """

    network: nn.Module
    model: str
    data: str
    sample_shape: tuple[int, ...]
    outputs: int
    tokens: bool = False
    encoding: Encoding | None = None

    def save(self, path: str | Path, version: str) -> None:
        """Write it, whole or not at all. version: that of altmin, for readers."""
        names = ("model", "data", "sample_shape", "outputs", "tokens")
        about = {"altmin": version, **{name: getattr(self, name) for name in names}}
        encoding = None if self.encoding is None else json.dumps(self.encoding.to_json())
        weights = self.network.state_dict()
        checkpoint.save(path, {"kind": KIND, **about, "encoding": encoding, "weights": weights})

    @classmethod
    def load(cls, path: str | Path, own: str | None = None) -> "TrainedModel":
        """Return what `save` wrote, on the CPU.

        own: the name MODULE:FUNCTION of a model of one's own. A file cannot have code imported by itself: ValueError if
        it holds such a model and this is not given; also for a file of another kind, and for weights that do not fit.
        """
        state = checkpoint.load(path)
        if not isinstance(state, dict) or state.get("kind") != KIND:
            raise ValueError(f"{path} is no model that altmin train --save-model wrote")
        name, shape, outputs, tokens = (state[key] for key in ("model", "sample_shape", "outputs", "tokens"))
        if ":" in name and own is None:
            raise ValueError(f"{path} holds the weights of {name}, which is code of your own; give --model {name}")
        network = models.create(own or name, shape, outputs, tokens)
        try:
            network.load_state_dict(state["weights"])
        except RuntimeError as error:
            words = " ".join(str(error).split())
            raise ValueError(f"the weights in {path} do not fit the model {own or name}: {words:.200}") from None
        encoding = None if state["encoding"] is None else Encoding.from_json(json.loads(state["encoding"]))
        about = {"data": state["data"], "tokens": tokens, "encoding": encoding}
        return cls(network=network, model=name, sample_shape=shape, outputs=outputs, **about)

    @property
    def target(self) -> Target:
        """What the outputs are of: those of a data set are its classes, by their numbers."""
        return Classes([str(n) for n in range(self.outputs)]) if self.encoding is None else self.encoding.target

    def outputs_of(self, x: Tensor) -> Tensor:
        """The network's outputs (samples, outputs) for samples, on the CPU. It is left in evaluation mode."""
        self.network.eval()
        with torch.no_grad():
            return torch.cat([self.network(part.to(device_of(self.network))).cpu() for part in x.split(ROWS)])


def described(known: Any) -> dict[str, Any]:
    """The fields of a `TrainedModel` that are those of its data, a `Dataset` or a `TableData`."""
    return {
        **{"data": known.name, "sample_shape": tuple(known.sample_shape), "outputs": known.classes},
        **{"tokens": known.tokens, "encoding": getattr(known, "encoding", None)},
    }
