"""Gauss-Newton for single samples: any model, by the step of `gauss_newton_step`."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from altmin.calculus import Params
from altmin.calculus.base import Map
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.linear import Dropout
from altmin.common.errors import Diverged
from altmin.common.state import demand_separate, matched
from altmin.core.codes.gradient import TINY
from altmin.core.cutting import split
from altmin.core.losses import AdaptedLoss, CrossEntropy, LossFunction, SquaredError
from altmin.core.step import encode
from altmin.core.trainer import check, check_model, check_weights
from altmin.core.weights.rule import as_matrix, parted
from altmin.methods.base import LossOnly, demand_finite, options_text
from altmin.methods.gauss_newton_step import (
    LEAST_NOISE,
    NOISE,
    Array,
    Matrix,
    Places,
    gauss_newton_step,
    memory_of,
)
from altmin.methods.protocol import register

LARGEST = 4096
"""Samples times outputs in one step: the side of the system that is solved."""


@register("gauss-newton")
class GaussNewton:
    """Trains the Linear layers and convolutions of a model, on a few samples at a time.

    loss: as of `AltMin`, taken as the negative logarithm of a probability; of a squared error that is the normal one
    whose variance is the running mean of squared errors, 1 at first: give targets of that size. start: the first P is
    start times I, which is also its bound. forget: factor on the memory before each step. floor: the least weight of an
    input in the memory. walk: what is added to the diagonal of P in each step, for weights that drift.

    P is kept in double precision in the processor's memory. TypeError for a recurrent net. ValueError for other
    parameters that are trained, for batch normalisation and dropout in training, for outputs with more than one
    dimension a sample, and for more than `LARGEST` samples times outputs.
    """

    loss = AdaptedLoss()
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
        check_model(model)
        demand_separate(model.named_parameters())
        self.model, self.chain, self.loss = model, split(model), nn.CrossEntropyLoss() if loss is None else loss
        self.chain.demand_plain("gauss-newton")
        if self.chain.recurrent:
            raise TypeError("gauss-newton does not differentiate through time; train a recurrent net with am-adam")
        self.options = {"start": start, "forget": forget, "floor": floor, "walk": walk, "loss": loss}
        self.memory = memory_of(start, forget, floor, walk)
        self.theta = self.chain.parameters()
        self.places = [
            (l, i) for l, block in enumerate(self.chain) for i, (m, _) in enumerate(block.core.pairs) if _is_trained(m)
        ]
        """Places of the trained layers: the block, and the map of its core."""
        if not self.places:
            raise ValueError("all parameters are frozen: there is nothing to train")
        self.P = [start * torch.eye(as_matrix(p).shape[1], dtype=torch.float64) for p in map(self._params, self.places)]
        self.noise = 1.0

    def __repr__(self) -> str:
        return options_text(self)

    def _params(self, place: tuple[int, int]) -> Params:
        l, i = place
        return self.theta[l][self.chain.blocks[l].core.slices[i]]

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, context: Context = LOCAL) -> LossOnly:
        """Take one step on these samples, of which one with weight w counts as w samples. ValueError for those that do
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
        *pairs, (gradient, hessian) = [tuple(t.cpu().numpy()[None] for t in pair) for pair in tensors]
        factors = [_factor(a, J, P.numpy()[None]) for (a, J), P in zip(pairs, self.P, strict=True)]
        with np.errstate(all="ignore"):
            changes = gauss_newton_step(factors, gradient, hessian, self.memory)
        for place, change in zip(self.places, changes, strict=True):
            params = self._params(place)
            for p, d in zip(params, parted(torch.from_numpy(change[0]).to(params[0].device), params), strict=True):
                p.add_(d)
        self.noise = noise
        return LossOnly(value)

    def _demand_alone(self, x: Tensor, y: Tensor) -> None:
        """Raise ValueError for numbers that are not finite, and where samples depend on each other or on chance."""
        demand_finite(*(t if t.is_floating_point() else t.float() for t in (x, y)))
        for block in self.chain:
            if block.mixes_samples or any(
                isinstance(m, Dropout) and m.module.training and m.module.p for m in block.maps
            ):
                raise ValueError(
                    "gauss-newton differentiates each sample by itself, which batch normalisation and dropout in "
                    "training do not allow; call model.eval() or leave them out (nothing was changed)"
                )

    def _at_output(self, output: Tensor, y: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, float]:
        """Return the mean loss over all ranks; for each sample the negative gradient and the Hessian, in double
        precision; the next noise."""
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
            mass = (n * targets.mass * torch.ones_like(output[:, :1])).double()
            p = output.double().softmax(1) + r / (2 * mass.clamp_min(TINY))
            H = mass.unsqueeze(2) * (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1))
        if context.weights is not None:
            w = context.weights.double()
            r, H = w[:, None] * r, w[:, None, None] * H
        return at.value.new_tensor(total / count), r, H, noise

    def _derivatives(self, x: Tensor, outputs: int) -> list[tuple[Tensor, Tensor]]:
        """Return a and J of each trained layer. Every sample passes once for each output, whose unit vector then passes
        back through the blocks."""
        n, blocks = len(x), self.chain.blocks
        states = encode(blocks, self.theta, x.repeat_interleave(outputs, 0), LOCAL)[1]
        v = torch.eye(outputs, dtype=self._params(self.places[0])[0].dtype, device=x.device).repeat(n, 1)
        pairs = []
        first = self.places[0][0]
        for l in range(len(blocks) - 1, first - 1, -1):
            block, p, state = blocks[l], self.theta[l], states[l]
            for i, (m, of) in reversed([*enumerate(block.core.pairs)]):
                if (l, i) in self.places:
                    a, J = (t.double().unflatten(0, (n, outputs, -1)) for t in m.columns(state.core[i], v))
                    pairs.append((a[:, 0], J))
                if i or l > first:
                    v = m.vjp(p[of], state.core[i], v)
            if l > first:
                for m, saved in zip(block.prelude.maps[::-1], state.prelude[::-1], strict=True):
                    v = m.vjp((), saved, v)
        return pairs[::-1]

    def end_epoch(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"P": [P.clone() for P in self.P], "noise": self.noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        new = matched(state, self.state_dict(), "GaussNewton")
        self.P, self.noise = [new.to(old.device) for new, old in zip(new["P"], self.P, strict=True)], new["noise"]


def _is_trained(m: Map) -> bool:
    trained = [m.module.get_parameter(name).requires_grad for name in m.names]
    if any(trained) and not (all(trained) and m.is_linear):
        raise ValueError(
            f"gauss-newton trains whole Linear layers and convolutions, and this model trains {m.module}; freeze its "
            "parameters, or use am-mem"
        )
    return any(trained)


def _factor(a: Array, J: Array, P: Array) -> Matrix | Places:
    """Return one factor. a: (1, samples, places, inputs). J: (1, samples, outputs of the net, places, outputs)."""
    return Places(a[0], J[0], P) if a.shape[2] > 1 else Matrix(a[:, :, 0], J[:, :, :, 0], P)


def _gathered(pairs: list[tuple[Tensor, Tensor]], context: Context) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors of the samples of all ranks, on each."""
    if context.shard is None:
        return pairs
    whole = []
    for t in (t for pair in pairs for t in pair):
        every = t.new_zeros(context.shard.of, *t.shape[1:])
        every[context.shard.start : context.shard.start + context.shard.own] = t
        whole.append(every)
    summed = context.sum(*whole)
    return list(zip(summed[::2], summed[1::2], strict=True))
