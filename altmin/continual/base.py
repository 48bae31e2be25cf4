"""What learns tasks: a method that is told when a task ends."""

from typing import Any

from torch import Tensor

from altmin.methods.wrapper import Wrapper
from altmin.training.samples import Samples


class Learner(Wrapper):
    """A `Method` around `method`, with one call more: `end_task` comes after the last `end_epoch` of a task, with its
    samples. Here it changes nothing: the method keeps what it has, such as its co-activation memory."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        return self.method.step(x, y)

    def end_task(self, samples: Samples) -> None:
        pass
