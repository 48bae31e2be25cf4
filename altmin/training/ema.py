"""EMA: an exponential moving average of the weights, which is measured and kept in place of the last ones."""

import copy
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from altmin.common.errors import demand
from altmin.common.state import check_module


class EMA:
    """A callback that averages weights and buffers after every step: a <- decay a + (1 - decay) w, from a = w after the
    first one, as torch's `AveragedModel` with `get_ema_multi_avg_fn(decay)`.

    Evaluations measure the average, and at the end of a run the model has it. Buffers that are no floating numbers are
    those of the model. `average` is the averaged model.
    """

    for_one = True

    def __init__(self, decay: float = 0.999):
        demand("EMA", "decay", decay)
        if decay >= 1:
            raise ValueError(f"decay of EMA must be below 1, given {decay!r}")
        self.decay, self.steps = decay, 0
        self.model: Any = None
        self.average: nn.Module | None = None
        self._update = get_ema_multi_avg_fn(decay)

    def __repr__(self) -> str:
        return f"EMA(decay={self.decay})"

    def on_start(self, progress: Any) -> None:
        self.model, self.average, self.steps = progress.model, None, 0

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        self.steps += 1
        if self.average is None:
            self.average = self._copy(model)
            return
        alike: dict[tuple[torch.device, torch.dtype], list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for old, new in zip(_tensors(self.average), _tensors(model), strict=True):
            if old.is_floating_point():
                alike.setdefault((old.device, old.dtype), []).append((old, new))
            else:
                old.copy_(new)
        for pairs in alike.values():
            self._update([old for old, _ in pairs], [new for _, new in pairs], self.steps)

    def evaluated_model(self, model: nn.Module) -> nn.Module:
        return model if self.average is None else self.average

    def on_end(self, progress: Any) -> None:
        if self.average is not None:
            progress.model.load_state_dict(self.average.state_dict())

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "average": {} if self.average is None else dict(self.average.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError, and nothing changes, for weights of another model."""
        average = None
        if state["average"]:
            average = self._copy(self.model)
            check_module(average, state["average"])
            average.load_state_dict(state["average"])
        self.average, self.steps = average, state["steps"]

    def _copy(self, model: nn.Module) -> nn.Module:
        return copy.deepcopy(model).requires_grad_(False)


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]
