"""Experience replay: every mini-batch is joined by as many samples from a buffer, a uniform sample of all seen."""

from typing import Any

import torch
from torch import Tensor, nn

from altmin.common.errors import demand
from altmin.continual.base import Learner
from altmin.methods import Method, create
from altmin.training.samples import Samples

LEVELS = 255


class Reservoir:
    """At any time a uniform sample of the samples added, without replacement, in at most `budget` bytes.

    A sample is one byte for each of its values and one for its label. Values are kept on 256 equal levels from the
    smallest to the largest value of the first mini-batch; images of bytes, standardised, come back as they were if
    that batch has both black and white. The n-th sample added (n > capacity) takes the place of one of those kept,
    each as likely as the other, with probability capacity / n (Vitter's algorithm R). Random numbers are torch's.
    """

    def __init__(self, budget: int):
        demand("Reservoir", "budget", budget, low=1, whole=True)
        self.budget, self.seen, self.capacity = budget, 0, 0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Raises ValueError for labels that are not whole numbers from 0 to 255, or a budget too small for a sample."""
        if y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) <= LEVELS:
            raise ValueError("a buffer keeps labels in a byte; give whole numbers from 0 to 255")
        if not self.seen:
            self._allocate(x)
        slots = {slot: i for i in range(len(x)) if (slot := self._slot(self.seen + i)) < self.capacity}  # the last wins
        self.seen += len(x)
        to, of = (torch.tensor(list(rows), dtype=torch.int64, device=x.device) for rows in (slots, slots.values()))
        levels = (x[of] - self.low) * (LEVELS / (self.high - self.low))
        self.inputs[to] = levels.round().clamp(0, LEVELS).to(torch.uint8)
        self.labels[to] = y[of].to(torch.uint8)

    def draw(self, samples: int) -> Samples:
        """Draws distinct samples from those kept; all of them if there are fewer."""
        kept = min(self.seen, self.capacity)
        rows = torch.randperm(kept)[:samples].to(self.labels.device)
        values = self.low + self.inputs[rows].to(self.dtype) * ((self.high - self.low) / LEVELS)
        return values, self.labels[rows].to(torch.int64)

    def _slot(self, n: int) -> int:
        """Where the sample with number n, from 0, goes; it is not kept if that is the capacity or more."""
        return n if n < self.capacity else int(torch.randint(n + 1, ()))

    def _allocate(self, x: Tensor) -> None:
        size = x[0].numel() + 1
        if self.budget < size:
            raise ValueError(f"a buffer of {self.budget} bytes holds no sample of {size} bytes; give a larger budget")
        self.capacity, self.dtype = self.budget // size, x.dtype
        self.low, self.high = float(x.min()), float(x.max())
        if self.low == self.high:
            self.high = self.low + 1
        self.inputs = torch.zeros(self.capacity, *x.shape[1:], dtype=torch.uint8, device=x.device)
        self.labels = torch.zeros(self.capacity, dtype=torch.uint8, device=x.device)

    def state_dict(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "labels": self.labels} if self.seen else {}


class Replay(Learner):
    """A step of `method` on a mini-batch and as many samples drawn from the buffer, to which the batch is then added.

    Of a buffer with fewer samples all are drawn; the first mini-batch is learnt alone.
    """

    def __init__(self, method: Method, budget: int):
        super().__init__(method)
        self.buffer = Reservoir(budget)

    def step(self, x: Tensor, y: Tensor) -> Any:
        joined = x, y
        if self.buffer.seen:
            drawn = self.buffer.draw(len(x))
            joined = torch.cat([x, drawn[0]]), torch.cat([y, drawn[1]])
        metrics = super().step(*joined)
        self.buffer.add(x, y)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"buffer": self.buffer.state_dict()}


def replay(model: nn.Module, budget: int = 2_860_104, lr: float = 1e-3, method: str = "adam") -> Replay:
    """Experience replay with a method by name and its rate. budget: the bytes of the buffer; the default is what the
    co-activation memory of 784-100-100-10 takes."""
    return Replay(create(method, model, lr=lr), budget)
