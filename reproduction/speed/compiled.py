"""Backprop with its step compiled by torch.compile: the rival of a step that is recorded."""

import os
import shutil
from importlib.util import find_spec

import torch
from torch import Tensor

from altmin.calculus.context import LOCAL, Context
from altmin.methods.backprop import Backprop, LossOnly


class Compiled(Backprop):
    """The same step, with forward and loss in one compiled function, and with them their derivatives. The optimizer's
    step is compiled too, unless it is a fused one: that is one kernel already, and torch does not trace into it."""

    def __init__(self, method: Backprop):
        super().__init__(method.model, method.optimizer, method.loss)
        self._loss = torch.compile(lambda x, y: self.loss(self.model(x), y), dynamic=False)
        fused = any(group.get("fused") for group in self.optimizer.param_groups)
        self._update = self.optimizer.step if fused else torch.compile(self.optimizer.step)
        from torch._dynamo.exc import TorchDynamoException  # not before something is compiled: it takes seconds

        self._failure = TorchDynamoException

    def step(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, *, context: Context = LOCAL) -> LossOnly:
        if sample_weight is not None or context is not LOCAL:
            return super().step(x, y, sample_weight, context=context)
        self.optimizer.zero_grad()
        try:
            loss = self._loss(x, y)
            loss.backward()
            self._update()
        except self._failure as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"torch.compile cannot compile this step: {reason}; run it as it is") from error
        return LossOnly(loss.detach())


def compiled(method: Backprop) -> Compiled:
    """`method` with its step compiled; the first steps compile and take seconds.

    torch keeps eight compiled versions of one function and runs further ones as they are, so after some methods call
    `torch.compiler.reset()`.
    """
    if type(method) not in (Backprop, Compiled):
        raise TypeError(f"only backprop is compiled, such as the methods adam and sgd, not {type(method).__name__}")
    check(next(method.model.parameters()).device)
    return Compiled(method)


def check(device: torch.device) -> None:
    """ValueError if torch.compile has no compiler."""
    if device.type == "cuda" and find_spec("triton") is None:
        raise ValueError(
            "torch.compile on a GPU needs the package triton, which is not here; install it, or do without"
        )
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++", "c++"))):
        raise ValueError("torch.compile on a CPU needs a C++ compiler, and no g++ or clang++ is here; install one")
