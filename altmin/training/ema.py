"""EMA: an exponential moving average of the weights, which is measured and kept in place of the last ones."""

from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from altmin.common.errors import demand
from altmin.common.state import fitted, module_form


class EMA:
    """A callback that averages weights and buffers after every step: a <- decay a + (1 - decay) w, from a = w after the
    first one, by torch's `AveragedModel` with `get_ema_multi_avg_fn(decay)`, which is `average`.

    Evaluations measure the average, and at the end of a run the model has it. Buffers that are no floating numbers are
    those of the model.
    """

    for_one = True

    def __init__(self, decay: float = 0.999):
        demand("EMA", "decay", decay)
        if decay >= 1:
            raise ValueError(f"decay of EMA must be below 1, given {decay!r}")
        self.decay = decay
        self.average: Any = None

    def __repr__(self) -> str:
        return f"EMA(decay={self.decay})"

    def on_start(self, progress: Any) -> None:
        update = get_ema_multi_avg_fn(self.decay)
        self.average = AveragedModel(progress.model, multi_avg_fn=update, use_buffers=True).requires_grad_(False)

    def after_step(self, model: nn.Module) -> None:
        self.average.update_parameters(model)
        for own, buffer in zip(self.average.module.buffers(), model.buffers(), strict=True):
            if not own.is_floating_point():
                own.copy_(buffer)

    def evaluated_model(self, model: nn.Module) -> nn.Module:
        return self.average.module if self.average.n_averaged else model

    def on_end(self, progress: Any) -> None:
        if self.average.n_averaged:
            progress.model.load_state_dict(self.average.module.state_dict())

    def state_dict(self) -> dict[str, Any]:
        return dict(self.average.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError, and nothing changes, for weights of another model."""
        self.average.load_state_dict(fitted(state, module_form(self.average), "the average of the weights"))
