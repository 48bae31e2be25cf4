"""A method of `altmin.methods` as a learner of tasks: it is not told where one ends."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from altmin.methods import Method
from altmin.training.samples import Samples


class MethodLearner:
    """Steps of a method, which keeps what it has when a task ends, such as its co-activation memory."""

    def __init__(self, method: Method):
        self.method = method

    @property
    def model(self) -> nn.Module:
        return self.method.model

    @property
    def optimizer(self) -> Optimizer | None:
        return self.method.optimizer

    def step(self, x: Tensor, y: Tensor) -> Any:
        return self.method.step(x, y)

    def end_epoch(self) -> None:
        self.method.end_epoch()

    def end_task(self, samples: Samples) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.method.state_dict()}
