"""The local weight rules: every block takes gradient steps on its own small problem (Algorithm 3, without memory).

The gradients are exact and local; what is done with them is left to torch's optimizers. These act on each parameter by
itself, so one optimizer over all blocks is the same as one for each, and all blocks move at once.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.blocks import Block, Chain, Theta
from altmin.codes import Local
from altmin.maps import Params

OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]


class LocalOptimizer:
    """Any torch optimizer on the local problems.

    factory: groups of parameters -> optimizer. lr: one for all blocks, or a sequence with one for each. steps: inner
    steps per mini-batch. l1: weight of |W|_1, by a proximal step after each. normalise: bring every hidden block's
    residual to unit size first. Adam, which ignores the scale of gradients, then learns at any depth, where residuals
    would fall below its epsilon; a rule that heeds the scale is better left with the gradient of f.
    """

    def __init__(
        self,
        factory: OptimizerFactory,
        lr: float | Sequence[float],
        steps: int = 1,
        l1: float = 0.0,
        normalise: bool = False,
    ):
        for rate in [lr] if isinstance(lr, int | float) else lr:
            if not rate >= 0:
                raise ValueError(f"a learning rate must be at least 0, given {rate!r}")
        if steps < 1:
            raise ValueError(f"weights need at least one step per mini-batch, given steps={steps}")
        self.factory, self.lr, self.steps, self.l1, self.normalise = factory, lr, steps, l1, normalise

    def bind(self, chain: Chain, blocks: Sequence[int]) -> None:
        """Takes charge of the given blocks of a chain."""
        self.blocks = tuple(blocks)
        groups = [[p for p in chain.parameters()[l] if p.requires_grad] for l in blocks]
        if isinstance(self.lr, Sequence):
            if len(self.lr) != len(blocks):
                raise ValueError(
                    f"lr has {len(self.lr)} entries for {len(blocks)} blocks; give one for each, or one for all"
                )
            rates = list(self.lr)
        else:
            groups, rates = [[p for group in groups for p in group]], [self.lr]
        kept = [{"params": group, "lr": rate} for group, rate in zip(groups, rates, strict=True) if group]
        self.optimizer = self.factory(kept or [{"params": [torch.zeros(0, requires_grad=True)], "lr": rates[0]}])
        self._sums: list[tuple[list[Tensor], Tensor]] = []
        self._samples = 0

    def update(self, chain: Chain, theta: Theta, problems: Sequence[Local], mu: float) -> None:
        """One mini-batch: `steps` steps on each block's problem."""
        for left in reversed(range(self.steps)):
            old = [[p.clone() for p in theta[l]] for l in self.blocks] if left else []
            for l in self.blocks:
                scale = self._scale(problems[l], problems[l].at.values.sum(), _samples(problems[l]), mu)
                _set_grads(theta[l], _gradients(chain.blocks[l], theta[l], problems[l], scale))
            self._step()
            if left:
                problems = list(problems)
                for l, p in zip(self.blocks, old, strict=True):
                    problems[l] = problems[l].after(_change(chain.blocks[l], p, theta[l], problems[l]))

    def gather(self, chain: Chain, theta: Theta, problems: Sequence[Local], mu: float) -> None:
        """Adds a part of a mini-batch too large to hold; `apply` then makes the step of the whole."""
        for i, l in enumerate(self.blocks):
            grads = _gradients(chain.blocks[l], theta[l], problems[l], 1.0)
            values = problems[l].at.values.sum()
            if len(self._sums) == i:
                self._sums.append((grads, values))
            else:
                self._sums[i] = (
                    [a.add_(b) for a, b in zip(self._sums[i][0], grads, strict=True)],
                    self._sums[i][1] + values,
                )
        self._samples += _samples(problems[0])

    def apply(self, theta: Theta, problems: Sequence[Local], mu: float) -> None:
        for l, (grads, values) in zip(self.blocks, self._sums, strict=True):
            scale = self._scale(problems[l], values, self._samples, mu)
            _set_grads(theta[l], [g * scale for g in grads])
        self._step()
        self._sums, self._samples = [], 0

    def _scale(self, problem: Local, values: Tensor, samples: int, mu: float) -> Tensor | float:
        """From the sum over samples of J^T force to the gradient."""
        if not problem.hidden:
            return -1 / samples
        if not self.normalise:
            return -2 * mu / samples
        rms = (2 * values / (samples * problem.at.force[0].numel())).sqrt()
        return -1 / (samples * rms).clamp_min(torch.finfo(values.dtype).tiny)

    def _step(self) -> None:
        self.optimizer.step()
        if self.l1:
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    if p.ndim > 1:
                        p.copy_(p.sign() * (p.abs() - group["lr"] * self.l1).clamp_min(0))

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


class LocalAdam(LocalOptimizer):
    """AM-Adam's rule. The weight decay is the decoupled one of AdamW, since the gradients' scale is not the loss's."""

    def __init__(
        self,
        lr: float | Sequence[float] = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        steps: int = 1,
        normalise: bool = True,
    ):
        def factory(groups: Iterable[Any]) -> torch.optim.Optimizer:
            return torch.optim.AdamW(groups, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)

        super().__init__(factory, lr, steps, l1, normalise)


class LocalSGD(LocalOptimizer):
    """AM-SGD's rule: plain gradient steps on f, with momentum if wanted."""

    def __init__(
        self,
        lr: float | Sequence[float] = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        steps: int = 1,
        normalise: bool = False,
    ):
        def factory(groups: Iterable[Any]) -> torch.optim.Optimizer:
            return torch.optim.SGD(groups, momentum=momentum, weight_decay=weight_decay, fused=True)

        super().__init__(factory, lr, steps, l1, normalise)


def _gradients(block: Block, p: Params, problem: Local, scale: Tensor | float) -> list[Tensor]:
    return block.core.grads(p, problem.core, problem.at.force * scale)


def _set_grads(p: Params, grads: Sequence[Tensor]) -> None:
    for parameter, grad in zip(p, grads, strict=True):
        if parameter.requires_grad:
            parameter.grad = grad


def _samples(problem: Local) -> int:
    return len(problem.at.force)


def _change(block: Block, old: Params, new: Params, problem: Local) -> Tensor:
    """How a change of parameters changes the output, without cancellation where the output is linear in them."""
    core, saved = block.core, problem.core
    if core.affine:
        return core.forward([b - a for a, b in zip(old, new, strict=True)], saved[0])[0]
    return core.replay(new, saved) - core.replay(old, saved)
