"""Gauss-Newton for single samples: a step with each sample's own curvature and without a learning rate.

Of sample i let r_i be the negative gradient and H_i the Hessian of its loss at the output, a_il the input of layer l
with a 1 appended for the bias, and J_il the Jacobian of the output with respect to the layer's output. Each layer has a
matrix P_l, the inverse of a co-activation memory that starts at I / start and fades by `forget`. The samples that come
together take the step

    K_ij = sum_l (a_il^T P_l a_jl) J_il J_jl^T
    r'   = (I + H K)^-1 r                                   what is left of r once all layers have moved
    W_l <- W_l + sum_i (J_il^T r'_i) (P_l a_il)^T
    P_l <- (forget P_l^-1 + sum_i f_il a_il a_il^T)^-1 + walk I,
           f_il = max(tr(J_il^T H_i J_il) / outputs of l, floor),

the exact minimum of the losses' quadratic models plus sum_l tr(dW_l P_l^-1 dW_l^T) / 2. Of cross-entropy H_i is
diag(p) - p p^T halfway between the prediction and the target, p = (softmax(o_i) + y_i) / 2: at a confident and wrong
prediction the Hessian itself is 0, and nothing would bound the step. The trace of P_l is bounded by its first value, so
that directions without input do not grow without end. A convolution has an input a and a Jacobian at each of its
places, over which products and sums go too, with floor divided by their number. Any other parameter has the diagonal of
P, from the derivative of each output by each of its entries.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from altmin.methods.layered import demand_finite
from altmin.methods.protocol import register

LARGEST = 4096
"""Samples times outputs in one step: the side of the system that is solved."""
NOISE = 0.99
"""Of the running mean of squared errors, by which a squared error is divided."""
LEAST_NOISE = 1e-6


class Matrix(NamedTuple):
    """A linear map: the inputs at its places (samples, places, inputs), and the Jacobians of each output with respect
    to its outputs there (samples, outputs of the net, places, outputs)."""

    a: Tensor
    J: Tensor

    def moved(self, P: Tensor) -> Tensor:
        """P a."""
        return self.a @ P

    def kernel(self, P: Tensor) -> Tensor:
        """What the map adds to K, (samples, outputs, samples, outputs)."""
        Q = torch.einsum("imd,jnd->imjn", self.moved(P), self.a)
        return torch.einsum("ikmo,imjn,jhno->ikjh", self.J, Q, self.J)

    def change(self, P: Tensor, left: Tensor) -> Tensor:
        return torch.einsum("ik,ikmo,imd->od", left, self.J, self.moved(P))

    def memory(self, P: Tensor, H: Tensor, forget: float, floor: float) -> Tensor:
        """The next P, before the random walk."""
        f = torch.einsum("ikmo,ikh,ihmo->im", self.J, H, self.J) / self.J.shape[-1]
        f = f.clamp_min(floor / self.a.shape[1])
        R = (f.sqrt().unsqueeze(-1) * self.a).flatten(0, 1)
        if len(R) > len(P):
            eye = torch.eye(len(P), dtype=P.dtype, device=P.device)
            X = torch.linalg.solve(forget * eye + R.mT @ (R @ P), P, left=False)
            return (X + X.mT) / 2
        U = R @ P
        inner = U @ R.mT
        inner.diagonal().add_(forget)
        V = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), U, upper=False)
        return (P - V.mT @ V) / forget


class Diagonal(NamedTuple):
    """Other parameters: the derivative of each output by each entry (samples, outputs, entries)."""

    G: Tensor

    def kernel(self, P: Tensor) -> Tensor:
        return torch.einsum("ike,jhe->ikjh", self.G * P, self.G)

    def change(self, P: Tensor, left: Tensor) -> Tensor:
        return torch.einsum("ik,ike->e", left, self.G) * P

    def memory(self, P: Tensor, H: Tensor, forget: float, floor: float) -> Tensor:
        return 1 / (forget / P + torch.einsum("ike,ikh,ihe->e", self.G, H, self.G))


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

    P is kept in double precision. TypeError for a recurrent net. ValueError for batch normalisation and dropout in
    training, for outputs with more than one dimension a sample, and for more than `LARGEST` samples times outputs.
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
        self.start, self.forget, self.floor, self.walk = start, forget, floor, walk
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
            return self.start * torch.eye(inputs, dtype=torch.float64, device=own[0].device)
        return torch.full_like(own[0], self.start, dtype=torch.float64).flatten().detach()

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
        factors, r, H = _gathered(self._factors(x, output.shape[1]), r, H, context)
        try:
            changes, memories = self._solved(factors, r, H)
        except torch.linalg.LinAlgError:
            raise Diverged("the solution of the samples' system", "give inputs of a smaller size") from None
        moved = []
        for part, change in zip(self.parts, changes, strict=True):
            own = self.theta[part.block][part.own]
            parts = parted(change, own) if part.linear else [change.view_as(own[0]).to(own[0].dtype)]
            moved += [(p, p + d) for p, d in zip(own, parts, strict=True)]
        if not all(bool(t.isfinite().all()) for t in (*memories, *(new for _, new in moved))):
            raise Diverged("the weights' next value", "give inputs of a smaller size")
        for p, new in moved:
            p.copy_(new)
        self.P, self.noise = memories, noise
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

    def _factors(self, x: Tensor, outputs: int) -> list[Matrix | Diagonal]:
        """Of each part what the formulas need. Every sample passes once for each output, whose unit vector then passes
        back through the blocks."""
        n = len(x)
        _, states = encode(self.chain.blocks, self.theta, x.repeat_interleave(outputs, 0), LOCAL)
        last = self.theta[-1][0] if self.theta[-1] else self.theta[0][0]
        v = torch.eye(outputs, dtype=last.dtype, device=last.device).repeat(n, 1)
        found: dict[int, Matrix | Diagonal] = {}
        first = self.parts[0].block
        for l in range(len(self.chain) - 1, first - 1, -1):
            block, p, state = self.chain.blocks[l], self.theta[l], states[l]
            for i in range(len(block.core.maps) - 1, -1, -1):
                m, of = block.core.pairs[i]
                for j, part in enumerate(self.parts):
                    if (part.block, part.map) != (l, i):
                        continue
                    factor = _matrix if part.linear else _diagonal
                    found[j] = factor(m, p[of], state.core[i], v, n, part.own.start - of.start)
                if i or l > first:
                    v = m.vjp(p[of], state.core[i], v)
            if l > first:
                for m, kept in zip(block.prelude.maps[::-1], state.prelude[::-1], strict=True):
                    v = m.vjp((), kept, v)
        return [found[j] for j in range(len(self.parts))]

    def _solved(self, factors: Sequence[Matrix | Diagonal], r: Tensor, H: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The changes of all parts, and their next P."""
        n, k = r.shape
        K = sum(f.kernel(P) for f, P in zip(factors, self.P, strict=True))
        system = torch.einsum("ikh,ihjg->ikjg", H, K).reshape(n * k, n * k)
        system.diagonal().add_(1.0)
        left = torch.linalg.solve(system, r.reshape(-1)).view(n, k)
        changes, memories = [], []
        for factor, P in zip(factors, self.P, strict=True):
            changes.append(factor.change(P, left))
            memories.append(self._bounded(factor.memory(P, H, self.forget, self.floor)))
        return changes, memories

    def _bounded(self, P: Tensor) -> Tensor:
        if P.ndim == 1:
            return (P + self.walk).clamp_max(self.start)
        P.diagonal().add_(self.walk)
        return P * (self.start * len(P) / P.diagonal().sum()).clamp_max(1.0)

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


def _matrix(m: Map, p: Params, saved: Saved, v: Tensor, n: int, number: int) -> Matrix:
    a, J = m.columns(saved, v)
    a = a.reshape(n, len(v) // n, -1, a.shape[-1])[:, 0]
    return Matrix(a.double(), J.reshape(n, len(v) // n, -1, J.shape[-1]).double())


def _diagonal(m: Map, p: Params, saved: Saved, v: Tensor, n: int, number: int) -> Diagonal:
    """By as many passes as there are samples times outputs: gradients are sums over all rows."""
    rows = []
    for i in range(len(v)):
        alone = torch.zeros_like(v)
        alone[i] = v[i]
        g = m.grads(p, saved, alone)[number]
        rows.append(g.flatten())
    return Diagonal(torch.stack(rows).double().unflatten(0, (n, -1)))


def _gathered(
    factors: list[Matrix | Diagonal], r: Tensor, H: Tensor, context: Context
) -> tuple[list[Matrix | Diagonal], Tensor, Tensor]:
    """Those of the samples of all ranks, on each."""
    if context.shard is None:
        return factors, r, H
    tensors = [r, H, *(t for factor in factors for t in factor)]
    whole = []
    for t in tensors:
        every = t.new_zeros(context.shard.of, *t.shape[1:])
        every[context.shard.start : context.shard.start + context.shard.own] = t
        whole.append(every)
    r, H, *rest = context.sum(*whole)
    given = iter(rest)
    return [type(factor)(*(next(given) for _ in factor)) for factor in factors], r, H


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
