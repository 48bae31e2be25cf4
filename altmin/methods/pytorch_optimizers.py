"""SOAP and Shampoo of the package pytorch-optimizer, which can be copied and saved here as torch's own can.

Imported by altmin.methods.preconditioned when one of them is made: all else does without the package.
"""

from typing import Any

import torch
from pytorch_optimizer import SOAP as PackageSOAP
from pytorch_optimizer import ScalableShampoo as PackageShampoo
from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting
from torch import Tensor

GRAFTS = {kind.name.lower(): kind for kind in LayerWiseGrafting}
"""By name: the optimizers whose length Shampoo's step can have."""


class Whole:
    """An optimizer whose copies keep what it has besides groups and state, which torch's `__getstate__` leaves out."""

    def __getstate__(self) -> dict[str, Any]:
        left_out = {name for name in vars(self) if name.startswith("_") or name == "step"}  # hooks; a scheduler's step
        return {name: value for name, value in vars(self).items() if name not in left_out}


class SOAP(Whole, PackageSOAP):
    pass


class Shampoo(Whole, PackageShampoo):
    """Its state is saved as tensors; the package keeps them in objects, which are in `state` only."""

    def state_dict(self) -> dict[str, Any]:
        saved: dict[str, Any] = super().state_dict()
        entries = {i: {name: _plain(value) for name, value in entry.items()} for i, entry in saved["state"].items()}
        return {**saved, "state": entries}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "state": {}})
        params = [p for group in self.param_groups for p in group["params"]]
        grads = [p.grad for p in params]
        for i, p in enumerate(params):
            p.grad = torch.zeros_like(p) if i in state_dict["state"] else None
        for group in self.param_groups:
            self.init_group(group)  # makes the objects of parameters that have a gradient
        for p, grad in zip(params, grads, strict=True):
            p.grad = grad
        for i, entry in state_dict["state"].items():
            own = self.state[params[i]]
            for name, value in entry.items():
                if isinstance(value, Tensor):
                    own[name] = value
                else:
                    vars(own[name]).update(value)


def _plain(value: Any) -> Any:
    """An object of the package as the dict of its tensors."""
    if isinstance(value, Tensor):
        return value
    return {name: held for name, held in vars(value).items() if _held(held)}


def _held(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list) and all(isinstance(t, Tensor) for t in value))
