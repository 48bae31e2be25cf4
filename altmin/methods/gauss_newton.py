"""Gauss-Newton for single samples: any model, by the step of `gauss_newton_step`."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from altmin.calculus import Params, Saved
from altmin.calculus.base import Map
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.linear import Dropout
from altmin.calculus.numbers import TINY
from altmin.common.errors import Diverged, demand
from altmin.common.state import demand_separate, matched
from altmin.core.chain import Block
from altmin.core.cutting import split
from altmin.core.losses import CrossEntropy, LossFunction, SquaredError, adapt
from altmin.core.step import encode
from altmin.core.trainer import check, check_model, check_weights
from altmin.core.weights.memory import parted
from altmin.core.weights.rule import as_matrix
from altmin.methods.base import LossOnly, options_text
from altmin.methods.gauss_newton_step import (
    LEAST_NOISE,
    NOISE,
    Array,
    Entries,
    Factor,
    Matrix,
    Memory,
    Places,
    gauss_newton_step,
)
from altmin.methods.layered import demand_finite
from altmin.methods.protocol import register

LARGEST = 4096
"""Samples times outputs in one step: the side of the system that is solved."""


class Part(NamedTuple):
    """Parameters with one P: those of a map of a block's core, by their number among the block's; of one that is no
    linear map, or has frozen parameters, each trained one by itself."""

    block: int
    map: int
    own: slice
    linear: bool


class GaussNewton:
    """Trains any model whose samples do not depend on each other, by the step above, on a few samples at a time.

    loss: as of `AltMin`, taken as the negative logarithm of a probability; of a squared error that is the normal one
    whose variance is the running mean of squared errors, 1 at first: give targets of that size. start: the first P is
    start times I, which is also its bound. forget: factor on the memory before each step. floor: the least weight of an
    input in the memory. walk: what is added to the diagonal of P in each step, for weights that drift.

    P is kept in double precision in the processor's memory. TypeError for a recurrent net. ValueError for batch
    normalisation and dropout in training, for outputs with more than one dimension a sample, and for more than
    `LARGEST` samples times outputs.
    """

    optimizer = None

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction | None = None,
        start: float = 0.5,
        forget: float = 0.999,
        floor: float = 0.06,
        walk: float = 0.0,
    ):
        check_options(type(self).__name__, start, forget, floor, walk)
        check_model(model)
        demand_separate(model.named_parameters())
        self.model, self.chain, self.loss = model, split(model), adapt(nn.CrossEntropyLoss() if loss is None else loss)
        self.chain.demand_plain("gauss-newton")
        if self.chain.recurrent:
            raise TypeError("gauss-newton does not differentiate through time; train a recurrent net with am-adam")
        self.options = {"start": start, "forget": forget, "floor": floor, "walk": walk, "loss": loss}
        self.memory = Memory(start, np.array([forget]), floor, walk)
        self.theta = self.chain.parameters()
        self.parts = [part for l, block in enumerate(self.chain) for part in _parts(l, block)]
        if not self.parts:
            raise ValueError("all parameters are frozen: there is nothing to train")
        self.P = [self._first(part) for part in self.parts]
        self.noise = 1.0

    def __repr__(self) -> str:
        return options_text(self)

    def _first(self, part: Part) -> Tensor:
        own = self.theta[part.block][part.own]
        if part.linear:
            inputs = as_matrix(own).shape[1]
            return self.memory.start * torch.eye(inputs, dtype=torch.float64)
        return torch.full((own[0].numel(),), self.memory.start, dtype=torch.float64)

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, context: Context = LOCAL) -> LossOnly:
        """One step on all samples given, of which one with weight w counts as w samples. ValueError for those that do
        not fit, `Diverged` if the next weights would not be finite; then nothing has changed."""
        check(x, y)
        self.chain.demand_unchanged()
        self._demand_alone(x, y)
        if sample_weight is not None:
            context = replace(context, weights=check_weights(sample_weight, x, context))
        output = encode(self.chain.blocks, self.theta, x, replace(context, weights=None))[0][-1]
        if output.ndim != 2 or context.count(len(x)) * output.shape[1] > LARGEST:
            raise ValueError(
                f"GaussNewton takes outputs of one dimension a sample and at most {LARGEST:,} samples times outputs, "
                f"given an output of {tuple(output.shape)}; give fewer samples, or use am-mem (nothing was changed)"
            )
        value, r, H, noise = self._at_output(output, y, context)
        if not bool(value.isfinite()):
            raise Diverged("the loss", "give inputs of a smaller size")
        tensors = _gathered([*self._derivatives(x, output.shape[1]), (r, H)], context)
        gradient, hessian = (_array(t)[None] for t in tensors.pop())
        factors = [_factor(each, P.numpy()) for each, P in zip(tensors, self.P, strict=True)]
        with np.errstate(all="ignore"):
            changes = gauss_newton_step(factors, gradient, hessian, self.memory)
        for part, change in zip(self.parts, changes, strict=True):
            own = self.theta[part.block][part.own]
            new = torch.from_numpy(change[0]).to(own[0].device)
            for p, d in zip(own, parted(new, own) if part.linear else [new.view_as(own[0])], strict=True):
                p.add_(d.to(p.dtype))
        self.noise = noise
        return LossOnly(value)

    def _demand_alone(self, x: Tensor, y: Tensor) -> None:
        """ValueError for numbers that are not finite, and where samples depend on each other or on chance."""
        demand_finite(*(t if t.is_floating_point() else t.float() for t in (x, y)))
        for block in self.chain:
            random = any(isinstance(m, Dropout) and m.module.training and m.module.p > 0 for m in block.maps)
            if random or block.mixes_samples:
                what = "dropout" if random else "batch normalisation"
                raise ValueError(
                    f"GaussNewton differentiates each sample by itself, which {what} in training does not allow; "
                    "call model.eval() or leave it out (nothing was changed)"
                )

    def _at_output(self, output: Tensor, y: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, float]:
        """The mean loss over all ranks; of each sample the negative gradient and the Hessian, in double precision; the
        next noise."""
        targets = self.loss.prepare(output, y, context)
        self.loss.check(output, y, context)
        at, n = self.loss.at(output, targets), len(output)
        terms = 1 if self.loss.adds else n
        eye = torch.eye(output.shape[1], dtype=output.dtype, device=output.device)
        H = torch.stack([at.hessian(e.expand_as(output)) for e in eye], 1).double() * terms
        r, (total, count) = -at.delta.double() * terms, context.sum_numbers(float(at.value) * n, n)
        noise = self.noise
        if isinstance(self.loss, SquaredError):
            times = output.shape[1] / (2 * self.noise)
            r, H = times * r, times * H
            noise = NOISE * noise + (1 - NOISE) * max(total / count, LEAST_NOISE)
        if isinstance(self.loss, CrossEntropy):
            mass = torch.ones_like(r[:, :1]) if targets.mass is None else targets.mass.double()
            p = output.double().softmax(1) + r / (2 * mass.clamp_min(TINY))
            H = mass.unsqueeze(2) * (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1))
        if context.weights is not None:
            w = context.weights.double()
            r, H = w[:, None] * r, w[:, None, None] * H
        return at.value.new_tensor(total / count), r, H, noise

    def _derivatives(self, x: Tensor, outputs: int) -> list[tuple[Tensor, ...]]:
        """Return a and J of each linear part, G of others. Every sample passes once for each output, whose unit vector
        then passes back through the blocks."""
        n = len(x)
        _, states = encode(self.chain.blocks, self.theta, x.repeat_interleave(outputs, 0), LOCAL)
        last = self.theta[-1][0] if self.theta[-1] else self.theta[0][0]
        v = torch.eye(outputs, dtype=last.dtype, device=last.device).repeat(n, 1)
        found: dict[int, tuple[Tensor, ...]] = {}
        first = self.parts[0].block
        for l in range(len(self.chain) - 1, first - 1, -1):
            block, p, state = self.chain.blocks[l], self.theta[l], states[l]
            for i in range(len(block.core.maps) - 1, -1, -1):
                m, of = block.core.pairs[i]
                for j, part in enumerate(self.parts):
                    if (part.block, part.map) != (l, i):
                        continue
                    derivatives = _of_matrix if part.linear else _of_entries
                    found[j] = derivatives(m, p[of], state.core[i], v, n, part.own.start - of.start)
                if i or l > first:
                    v = m.vjp(p[of], state.core[i], v)
            if l > first:
                for m, kept in zip(block.prelude.maps[::-1], state.prelude[::-1], strict=True):
                    v = m.vjp((), kept, v)
        return [found[j] for j in range(len(self.parts))]

    def end_epoch(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"P": [P.clone() for P in self.P], "noise": self.noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        new = matched(state, self.state_dict(), "GaussNewton")
        self.P, self.noise = [new.to(old.device) for new, old in zip(new["P"], self.P, strict=True)], new["noise"]


def check_options(of: str, start: float, forget: float, floor: float, walk: float) -> None:
    """ValueError or TypeError for options that cannot be."""
    demand(of, "start", start, above=True)
    demand(of, "floor", floor)
    demand(of, "walk", walk)
    demand(of, "forget", forget, above=True)
    if forget > 1:
        raise ValueError(f"forget of {of} lies above 0 and is at most 1, given {forget!r}")


def _parts(l: int, block: Block) -> list[Part]:
    """The trained parameters of a block."""
    found = []
    for i, (m, of) in enumerate(block.core.pairs):
        trained = [m.module.get_parameter(name).requires_grad for name in m.names]
        if m.is_linear and all(trained) and m.names:
            found.append(Part(l, i, of, True))
        else:
            found += [Part(l, i, slice(of.start + j, of.start + j + 1), False) for j, t in enumerate(trained) if t]
    return found


def _of_matrix(m: Map, p: Params, saved: Saved, v: Tensor, n: int, number: int) -> tuple[Tensor, ...]:
    a, J = m.columns(saved, v)
    a = a.reshape(n, len(v) // n, -1, a.shape[-1])[:, 0]
    return a.double(), J.reshape(n, len(v) // n, -1, J.shape[-1]).double()


def _of_entries(m: Map, p: Params, saved: Saved, v: Tensor, n: int, number: int) -> tuple[Tensor, ...]:
    """By as many passes as there are samples times outputs: gradients are sums over all rows."""
    rows = []
    for i in range(len(v)):
        alone = torch.zeros_like(v)
        alone[i] = v[i]
        rows.append(m.grads(p, saved, alone)[number].flatten())
    return (torch.stack(rows).double().unflatten(0, (n, -1)),)


def _factor(derivatives: tuple[Tensor, ...], P: Array) -> Factor:
    first, *rest = map(_array, derivatives)
    if not rest:
        return Entries(first, P)
    a, J, P = first, rest[0], P[None]
    return Places(a, J, P) if a.shape[1] > 1 else Matrix(a[None, :, 0], J[None, :, :, 0], P)


def _array(t: Tensor) -> Array:
    found: Array = t.cpu().numpy()
    return found


def _gathered(groups: list[tuple[Tensor, ...]], context: Context) -> list[tuple[Tensor, ...]]:
    """Return the tensors of the samples of all ranks, on each."""
    if context.shard is None:
        return groups
    whole = []
    for t in (t for group in groups for t in group):
        every = t.new_zeros(context.shard.of, *t.shape[1:])
        every[context.shard.start : context.shard.start + context.shard.own] = t
        whole.append(every)
    summed = iter(context.sum(*whole))
    return [tuple(next(summed) for _ in group) for group in groups]


@register("gauss-newton")
def gauss_newton(
    model: nn.Module,
    start: float = 0.5,
    forget: float = 0.999,
    floor: float = 0.06,
    walk: float = 0.0,
    loss: nn.Module | None = None,
) -> GaussNewton:
    """For single samples and small batches: each sample's own curvature instead of a learning rate."""
    return GaussNewton(model, loss, start, forget, floor, walk)
