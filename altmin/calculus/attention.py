"""Scaled dot-product attention, between operations that only rearrange entries."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.base import Params
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.multi_input import Direction, MultiInput


class Views:
    """A linear function of tensors whose outputs are their entries in other places, and its transpose.

    call: the function. made: its outputs at xs, by which autograd knows the transpose; inside `torch.func` and in what
    is compiled (traced) it is computed again.
    """

    def __init__(self, call: Callable[..., Sequence[Tensor]], xs: Sequence[Tensor], traced: bool):
        self.call, self.xs, self.traced = call, list(xs), traced
        if traced:
            self.made = list(call(*xs))
        else:
            with torch.enable_grad():
                self.xs = [x.detach().requires_grad_() for x in xs]
                self.made = list(call(*self.xs))
        self.outputs = [t.detach() for t in self.made]

    def transposed(self, vs: Sequence[Tensor]) -> Sequence[Tensor]:
        """For every input the sum of the outputs' entries that come from it."""
        if self.traced:
            return torch.func.vjp(lambda *xs: tuple(self.call(*xs)), *self.xs)[1](tuple(vs))
        return torch.autograd.grad(self.made, self.xs, vs, retain_graph=True, materialize_grads=True)


class Attended(NamedTuple):
    """Queries, keys, values, a mask or None, and how they come from the inputs and the output from them. xs: the
    inputs."""

    xs: list[Any]
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    before: Views
    after: Views


class Attention(MultiInput):
    """y = after(P v), P = softmax(scale q k^T + mask), (q, k, v) = before(x_1, ..., x_n), along the last dimension.

    before, after: linear functions, which only rearrange entries; `before` returns three tensors, `after` a list of
    one; `after` also gets the inputs, to read their sizes. masked: whether the last input is a mask, of
    truth values or added, which has no derivative. causal: whether a query sees no keys after its own place. scale:
    None for 1 / sqrt(the size of a query).

    With s for a direction of the scores, P s = P * (s - sum(P * s)) is symmetric. The quotient of the softmax is exact:
    with E = (1 - exp(-e s)) / e it is P * (E - sum(P * E)) / (1 - e sum(P * E)).
    """

    def __init__(
        self,
        before: Callable[..., Sequence[Tensor]],
        after: Callable[..., Sequence[Tensor]],
        masked: bool = False,
        causal: bool = False,
        scale: float | None = None,
    ):
        super().__init__()
        self.before, self.after, self.masked, self.causal, self.given_scale = before, after, masked, causal, scale

    def forward(self, p: Params, xs: Sequence[Any], context: Context = LOCAL) -> tuple[Tensor, Attended]:
        moving, mask = (xs[:-1], xs[-1]) if self.masked else (xs, None)
        before = Views(self.before, moving, False)
        q, k, v = before.outputs
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal, scale=self.given_scale)
        after = Views(lambda y: self.after(y, *moving), [y], False)
        return after.outputs[0], Attended(list(xs), q, k, v, mask, before, after)

    def vjp(self, p: Params, saved: Attended, v: Tensor) -> Sequence[Direction]:
        _, q, k, values, *_ = saved
        (dy,) = saved.after.transposed([v])
        P = self._weights(saved)
        ds = _centred(dy @ values.mT, P) * self.scale(q)
        parts = zip((ds @ k, ds.mT @ q, P.mT @ dy), (q, k, values), strict=True)
        found: list[Direction] = list(saved.before.transposed([g.sum_to_size(t.shape) for g, t in parts]))
        return [*found, None] if self.masked else found

    def jvp(self, p: Params, saved: Attended, us: Sequence[Direction]) -> Tensor:
        uq, uk, uv = self._directions(saved, us)
        _, q, k, v, *_ = saved
        P = self._weights(saved)
        dP = _centred((uq @ k.mT + q @ uk.mT) * self.scale(q), P)
        return saved.after.call(dP @ v + P @ uv)[0]

    def scale(self, q: Tensor) -> float:
        return q.shape[-1] ** -0.5 if self.given_scale is None else self.given_scale

    def _weights(self, saved: Attended) -> Tensor:
        """P. It is zero for a query whose keys are all masked."""
        scores = saved.q @ saved.k.mT * self.scale(saved.q)
        mask = saved.mask
        if self.causal:
            mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
        if mask is None:
            return scores.softmax(-1)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        return torch.ops.aten._safe_softmax(scores, -1)

    def _directions(self, saved: Attended, us: Sequence[Direction]) -> Sequence[Tensor]:
        """The directions of queries, keys and values."""
        moving = zip(us[:-1] if self.masked else us, saved.xs, strict=False)
        return self.before(*(torch.zeros_like(x) if u is None else u for u, x in moving))


def _centred(s: Tensor, P: Tensor) -> Tensor:
    """P * (s - sum(P * s)), by torch's own kernel."""
    return torch.ops.aten._softmax_backward_data(s, P, -1, P.dtype)
