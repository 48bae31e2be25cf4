"""Predictive coding: codes settle towards a minimum of an energy, then every block's weights follow their own error.

Block l predicts its code z_l as f_l(z_{l-1}), with z_0 = x. The energy of a mini-batch, a sum over its n samples, is

    F(z, W) = n loss(f_L(z_{L-1}), y) + 1/2 sum_{l<L} |r_l|^2,        r_l = f_l(z_{l-1}) - z_l.

Inference is a number of gradient steps of all codes at once, from the forward pass on, where all r_l are 0:

    dF/dz_l = J_{l+1}^T delta_{l+1} - delta_l,    delta_l = r_l,    delta_L = n (gradient of the loss at the output).

The weights then follow dF/dW_l = (df_l/dW_l)^T delta_l, divided by n. Where inference has converged, deltas obey
backprop's recursion, at other codes than backprop's.

`pc_alm` minimises the loss subject to z_l = f_l(z_{l-1}), by the augmented Lagrangian: delta_l = lambda_l + rho r_l,
and all else is the same. Where codes and multipliers have converged all r_l are 0, so that codes are those of the
forward pass, and lambda_l is n times backprop's gradient at z_l. As published, by the authors' code: multipliers that
start at 0 and gather every block's error, one gradient step of the codes between two updates of the multipliers, and
weights that follow it with the multipliers of the last step. Chosen here: multipliers move by rho times the error, as
in the method of multipliers, and codes by inference_rate over rho, so that a rate that is stable stays so when rho
changes.

Codes are kept as offsets u_l, how far z_l is below its value in the forward pass, and r_l = u_l - q_l with the block's
difference q_l = f_l(z) - f_l(z - u_{l-1}), at the z of the forward pass, which is J u_{l-1} where it is smaller than
their rounding: in a deep net the errors of the first blocks are, and would be lost. Equal blocks in a row are
vectorised: one batched product does for all of them.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from altmin.calculus import Discrete, Elementwise, Linear, Params, ReLU, ResidualLayer
from altmin.calculus.context import LOCAL, Context, sum_tree
from altmin.common.errors import Diverged
from altmin.common.state import demand_separate
from altmin.core.chain import Block, Chain, State, Theta
from altmin.core.cutting import split
from altmin.core.losses import AdaptedLoss, Loss, LossFunction
from altmin.core.reweighted import of_batch
from altmin.core.step import encode, statistics
from altmin.core.trainer import check, check_model
from altmin.layers import StraightThrough, no_derivative
from altmin.methods.base import LossOnly, OptimizerMethod, demand_finite, demand_step, without_model
from altmin.methods.protocol import register

ALIKE = (ReLU, Elementwise, Linear, ResidualLayer)
"""Maps of blocks that can be vectorised: they draw no random numbers, and each sample is mapped by itself."""


class BlockGroup:
    """Hidden blocks first..last, all alike, with the offsets u of their codes and their multipliers.

    Tensors of one block have its shapes; those of several have a first dimension besides, one entry for each block.
    """

    def __init__(self, chain: Chain, theta: Theta, values: list[Tensor], states: list[State], first: int, last: int):
        self.block, self.blocks, self.several = chain.blocks[first], range(first, last + 1), last > first
        self.p, self.state, self.u = theta[first], states[first], torch.zeros_like(values[first + 1])
        self.inputs = values[first]
        if self.several:
            self.p = [torch.stack(column) for column in zip(*theta[first : last + 1], strict=True)]
            self.inputs = torch.stack(values[first : last + 1])
            self.state, self.u = vmap(self.block.forward)(self.p, self.inputs)[1], torch.zeros_like(self.inputs)
        self.multipliers = torch.zeros_like(self.u)

    def errors(self, below: Tensor | None) -> tuple[Tensor, State]:
        """Return r of every block, and what its modules remember, at the present codes. below: the offset of the code
        below the first block; None above the data."""
        if below is None:
            return self.u, self.state
        inputs = torch.cat([below.unsqueeze(0), self.u[:-1]]) if self.several else below
        q, state = self._per_block(partial(difference, self.block))(self.p, self.state, self.inputs, inputs)
        return self.u - q, state

    def move(self, state: State, delta: Tensor, above: Tensor, rate: float) -> Tensor:
        """Take one gradient step of the codes. above: J^T delta of the block above the last one. Return that of the
        first one."""
        if self.blocks[0] == 0:  # there is no code below
            self.u = torch.add(self.u, above.sub(delta), alpha=rate)
            return above
        pulled = self._per_block(self.block.vjp)(self.p, state, delta)
        wanted = torch.cat([pulled[1:], above.unsqueeze(0)]) if self.several else above
        self.u = torch.add(self.u, wanted.sub(delta), alpha=rate)
        return pulled[0] if self.several else pulled

    def grads(self, state: State, delta: Tensor) -> list[Params]:
        """Return the gradients of <delta, f> with respect to the parameters of every block."""
        grads = self._per_block(self.block.core.grads)(self.p, state.core, delta)
        return [[grad[i] for grad in grads] for i in range(len(self.blocks))] if self.several else [grads]

    def _per_block(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return vmap(function) if self.several else function


def difference(block: Block, p: Params, state: State, z: Tensor, u: Tensor) -> tuple[Tensor, State]:
    """Return f(z) - f(z - u), and the block's state at z - u. Where the outputs differ by less than their rounding it
    is J u."""
    y, (there, moved) = block.replay(p, state, z)[0], block.replay(p, state, z - u)
    change = y - there
    clear = change.square().sum() > torch.finfo(y.dtype).eps * y.square().sum()
    return torch.where(clear, change, block.jvp(p, state, u)), moved


class Inference:
    """The codes of one mini-batch while they settle, from the forward pass on: values, states of all blocks there.

    rho: the weight of |r|^2 / 2. dual: every step adds this multiple of the errors to the multipliers, and then moves
    the codes; 0 for no multipliers. loss: that of the forward pass; unit: by what it is multiplied in the energy.
    """

    def __init__(
        self,
        chain: Chain,
        theta: Theta,
        loss: Loss,
        x: Tensor,
        y: Tensor,
        rho: float = 1.0,
        dual: float = 0,
        context: Context = LOCAL,
    ):
        self.values, self.states = encode(chain.blocks, theta, x, context)
        self.block, self.p, self.output = chain.blocks[-1], theta[-1], self.values[-1]
        self.delta_at, self.targets = loss.delta, loss.prepare(self.output, y, context)
        self.loss, self.unit = loss.at(self.output, self.targets).value, loss.samples(self.output)
        self.rho, self.dual = rho, dual
        self.groups = [BlockGroup(chain, theta, self.values, self.states, *ends) for ends in groups_of(chain)]

    def step(self, rate: float) -> None:
        """Move multipliers by the errors as they are, then all codes at once by one gradient step."""
        errors, deltas, states = self.evaluate(self.rho + self.dual)
        above = self.block.vjp(self.p, states[-1], deltas[-1])
        for i in reversed(range(len(self.groups))):
            if self.dual:
                self.groups[i].multipliers.add_(errors[i], alpha=self.dual)
            above = self.groups[i].move(states[i], deltas[i], above, rate)

    def evaluate(self, weight: float) -> tuple[list[Tensor], list[Tensor], list[State]]:
        """Return errors, deltas and states at the present codes: of every group its r, multipliers plus `weight` times
        r, and what its modules remember; deltas and states of the output block last."""
        errors, deltas, states = [], [], []
        below: Tensor | None = None
        for group in self.groups:
            error, state = group.errors(below)
            errors.append(error)
            deltas.append(torch.add(group.multipliers, error, alpha=weight))
            states.append(state)
            below = group.u[-1] if group.several else group.u
        output, state = self.output, self.states[-1]
        if below is not None:
            q, state = difference(self.block, self.p, state, self.values[-2], below)
            output = output - q
        deltas.append(self.delta_at(output, self.targets) * self.unit)
        return errors, deltas, [*states, state]

    def grads(self) -> list[Params]:
        """Return the gradients of the energy over `unit`, at the present codes, for the parameters of every block."""
        _, deltas, states = self.evaluate(self.rho)
        grads: list[Params] = [self.block.core.grads(self.p, states.pop().core, deltas.pop())]
        for group in reversed(self.groups):
            grads[:0] = group.grads(states.pop(), deltas.pop())
        return [[grad / self.unit for grad in block] for block in grads]


def groups_of(chain: Chain) -> list[tuple[int, int]]:
    """Return the first and last block of every group: hidden blocks in a row that are alike, or one that is like no
    neighbour. The first block of the chain, whose input does not move, is a group of its own.

    >>> import altmin
    >>> groups_of(split(altmin.models.mlp(4, (3, 3, 3, 2), 2)))
    [(0, 0), (1, 2), (3, 3)]
    """
    groups = []
    hidden = enumerate(chain.blocks[:-1])
    for _, row in itertools.groupby(hidden, lambda item: _kind(item[1]) if item[0] else item[0]):
        numbers = [l for l, _ in row]
        groups.append((numbers[0], numbers[-1]))
    return groups


def _kind(block: Block) -> Any:
    """Return a key that is equal for blocks that can be vectorised together, and for no others."""
    return repr([m.module for m in block.maps]) if all(isinstance(m, ALIKE) for m in block.maps) else block


class PredictiveCoding(OptimizerMethod):
    """Inference on a mini-batch, then one step of Adam along the gradients of every block's own term of the energy.

    name: the method's. options: the factory's arguments. rho, dual: as in `Inference`.
    """

    loss = AdaptedLoss()

    def __init__(self, name: str, model: nn.Module, options: dict[str, Any], rho: float = 1.0, dual: float = 0.0):
        self.chain = split(model)
        self.chain.demand_plain(name)
        if options["inference_steps"] is None:
            options = {**options, "inference_steps": max(16, 2 * len(self.chain))}
        self.rho, self.dual = rho, dual
        check_model(model)
        demand_separate(model.named_parameters())
        for module in [m.module for block in self.chain for m in block.maps if isinstance(m, Discrete)]:
            if not isinstance(module, StraightThrough):
                raise no_derivative(module)
        if self.chain.recurrent:
            raise TypeError(f"{name} has no codes in time; train a recurrent net with am-adam, or by backprop")
        if not any(p.requires_grad for p in model.parameters()):
            raise ValueError("all parameters are frozen: there is nothing to train")
        self.loss = nn.CrossEntropyLoss() if options["loss"] is None else options["loss"]
        self.theta = self.chain.parameters()
        numbers = {"lr": options["lr"], "weight_decay": options["weight_decay"]}
        super().__init__(model, options, torch.optim.Adam(model.parameters(), **numbers, fused=True))

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> LossOnly:
        """Take one mini-batch. ValueError or TypeError if it does not fit the model, `Diverged` if codes or weights
        would not be finite; then nothing has changed."""
        self.chain.demand_unchanged()
        check(x, y)
        demand_finite(x, y)
        inference = Inference(self.chain, self.theta, of_batch(self.loss, context), x, y, self.rho, self.dual, context)
        for _ in range(self.options["inference_steps"]):
            inference.step(self.options["inference_rate"] / self.rho)
        grads = sum_tree(inference.grads(), context)
        self.loss.check(inference.output, y)
        if not bool(torch.stack([inference.loss, *(g.sum() for block in grads for g in block)]).sum().isfinite()):
            raise Diverged("the energy or its gradient", "lower inference_rate or lr")
        for p, g in (
            (p, g) for params, block in zip(self.theta, grads, strict=True) for p, g in zip(params, block, strict=True)
        ):
            p.grad = g if p.requires_grad else None
        demand_step(inference.loss, self.optimizer)
        self.optimizer.step()
        for m, saved in statistics(self.chain.blocks, inference.states):
            m.commit(saved)
        return LossOnly(inference.loss)


@register("predictive-coding")
def predictive_coding(
    model: nn.Module,
    lr: float = 1e-3,
    inference_steps: int | None = None,
    inference_rate: float = 0.1,
    weight_decay: float = 0.0,
    loss: LossFunction | None = None,
) -> PredictiveCoding:
    """Minimises the energy loss + sum of |z_l - f_l(z_{l-1})|^2 / 2, first over the codes, then over the weights.

    For every mini-batch the codes start at the forward pass and take `inference_steps` gradient steps of size
    `inference_rate`, all layers at once; then each block's weights take one step of Adam along their own gradient
    there. inference_steps: None for two for each block, and 16 at least: a step carries errors down by one block.
    inference_rate: codes diverge above 2 over the energy's largest curvature, at most (1 + |J|)^2 where blocks have
    Jacobians of norm |J|; 0.25 suits residual nets, whose blocks are near the identity.

    Whittington and Bogacz (2017), "An Approximation of the Error Backpropagation Algorithm in a Predictive Coding
    Network with Local Hebbian Synaptic Plasticity"; Innocenti, Achour and Buckley (2025), "muPC: Scaling Predictive
    Coding to 100+ Layer Networks".
    """
    return PredictiveCoding("predictive-coding", model, without_model(locals()))


@register("pc-alm")
def pc_alm(
    model: nn.Module,
    lr: float = 1e-3,
    inference_steps: int | None = None,
    inference_rate: float = 0.1,
    rho: float = 1.0,
    weight_decay: float = 0.0,
    loss: LossFunction | None = None,
) -> PredictiveCoding:
    """Minimises the loss over the weights subject to z_l = f_l(z_{l-1}), by the augmented Lagrangian: for every
    mini-batch codes descend and multipliers ascend in turn, then the weights descend.

    Each of `inference_steps` steps adds rho times its error to the multiplier of every layer, then moves all codes by
    one gradient step of size `inference_rate` / rho; at the end each block's weights take one step of Adam along their
    own gradient of the Lagrangian. inference_steps and inference_rate are as in predictive coding; the largest stable
    rate is about half as large, since a step sees every error twice, in the multiplier and in the square.

    Seely and Gould (2026), "Augmented Lagrangian Predictive Coding".
    """
    return PredictiveCoding("pc-alm", model, without_model(locals()), rho=rho, dual=rho)
