"""The captured step of predictive coding: all steps of inference, and the update of the weights, in one graph."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.context import Context
from altmin.calculus.numbers import Tensors
from altmin.core.step import statistics
from altmin.methods.predictive_coding import PredictiveCoding
from altmin.runners.capture import CapturedStep, captured, commit
from altmin.runners.optimizer_on_device import OptimizerOnDevice


@captured.register(PredictiveCoding)
class PredictiveCodingStep(CapturedStep):
    """`PredictiveCoding.step`, without its checks: a step that is not finite changes nothing, nor do those after it."""

    def __init__(self, method: PredictiveCoding, fuse: bool, context: Context):
        self.method, self.optimizer = method, OptimizerOnDevice(method.optimizer)
        self.context = replace(context, numbers=Tensors)
        self.state = torch.tensor([1.0, 0.0], device=method.theta[0][0].device)
        """Whether all steps have been finite (1, else 0), and how many were taken."""

    @torch.no_grad()
    def run(self, x: Tensor, y: Tensor, kind: bool = False, **how: Any) -> Tensor:
        inference, grads, finite = self.method.inferred(x, y, self.context)
        ok = self.state[0] * finite
        self.state.copy_(torch.stack([ok, self.state[1] + ok]))
        with self.optimizer.swapped(1 - ok):
            self.method.weights.step(dict(enumerate(grads)), check=False)
        commit(statistics(self.method.chain.blocks, inference.states), ok > 0)
        return inference.loss

    def tensors(self) -> list[Tensor]:
        return [self.state, *self.method.model.buffers(), *self.optimizer.tensors()]

    def push(self) -> None:
        self.method.chain.demand_unchanged()
        self.optimizer.push()

    def pull(self) -> int | None:
        ok, taken = self.state.tolist()
        self.state.copy_(self.state.new_tensor([1.0, 0.0]))
        return None if ok else int(taken)
