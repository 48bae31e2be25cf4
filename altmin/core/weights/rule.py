"""The interface of weight rules: how the weights of one block follow its code, as functions without side effects."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.common.describe import describe
from altmin.core.chain import Block, Chain
from altmin.core.codes.links import LocalProblem

State = Any
"""Tensors in lists, tuples and dicts: the state of a rule for one block."""
Contribution = Any
"""Tensors in lists, tuples and dicts: the contribution of one mini-batch to one block, as means over samples."""


class WeightRule:
    """A rule has three functions; a trainer, an ensemble, a captured step and ranks call these and nothing else.

        init(block, parameters) -> state
        measure(block, parameters, problem) -> contribution
        update(parameters, state, contribution, samples, rates) -> (changes, state)

    A contribution is a mean over the samples of a mini-batch, as the gradient of its loss is: those of ranks are added,
    those of parts of a mini-batch, of sites or of a whole data set are averaged, weighted by their samples. State and
    contribution are tensors in lists, tuples and dicts of the same form at every step. None of the functions changes
    its arguments or reads a number from a tensor. Runners keep the state, add the changes to the parameters, and check
    that both are finite.
    """

    claimed = False
    """Whether it is bound to a trainer."""

    def __repr__(self) -> str:
        """Its settings, by which runs and sites are distinguished."""
        options = {name: value for name, value in vars(self).items() if name != "claimed"}
        return f"{type(self).__name__}({', '.join(f'{name}={describe(value)}' for name, value in options.items())})"

    def assign(self, chain: Chain) -> dict[int, "WeightRule"]:
        """The rule of every block, by its number: this one."""
        return dict.fromkeys(range(len(chain)), self)

    def init(self, block: Block, parameters: Params) -> State:
        """The state before the first mini-batch."""
        return ()

    def measure(self, block: Block, parameters: Params, problem: LocalProblem) -> Contribution:
        """What `update` needs of a block's problem: here the gradient of its parameters."""
        return problem.grads(block, parameters)

    def update(
        self, parameters: Params, state: State, contribution: Contribution, samples: Any, rates: Mapping[str, Any]
    ) -> tuple[Sequence[Tensor], State]:
        """The changes of the parameters and the next state. samples: the number of samples over which the contribution
        is the mean. rates: "lr", where the rule has such an attribute, as a scheduler has it now; "refresh", whether
        this is an update for which `is_due` is true."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def update_all(
        self,
        theta: Mapping[int, Params],
        states: Mapping[int, State],
        contributions: Mapping[int, Contribution],
        samples: Any,
        rates: Mapping[str, Any],
    ) -> dict[int, tuple[Sequence[Tensor], State]]:
        """`update` of several blocks, by their numbers: for a rule that does something for all of them at once."""
        return {l: self.update(theta[l], states[l], contributions[l], samples, rates) for l in states}

    def is_due(self, count: int) -> bool:
        """Whether this update, counted from 1, is to compute again what the rule keeps for several updates; here none
        is. A captured step has a program for each of the two kinds of updates."""
        return False

    def steps_of(self, state: State) -> int:
        """How many updates a state has seen, for a rule with `is_due`."""
        return 0

    def why_not_captured(self) -> str:
        """Why an update cannot be captured as a CUDA graph; empty if it can."""
        return ""


def as_matrix(p: Params) -> Tensor:
    """All parameters side by side, a bias as one column."""
    return torch.cat([q.flatten(1) if q.ndim > 1 else q.unsqueeze(1) for q in p], 1)


class Rates(torch.optim.Optimizer):
    """What a learning-rate scheduler attaches to, for a rule without an optimizer of torch's."""

    def __init__(self, params: Sequence[Tensor], lr: float):
        super().__init__([{"params": list(params)}], {"lr": lr, "differentiable": False})
        self._opt_called = True  # schedulers check this: the trainer's steps count as its own

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """RuntimeError: the trainer moves the weights."""
        raise RuntimeError("the trainer moves the weights; call its step(x, y)")
