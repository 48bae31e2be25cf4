"""Codes in time: the Elman network h_t = tanh(c_t), c_t = U x_t + W h_{t-1} + b, read out as z_t = V h_t.

Every step has a code c_t of its own, and z is a code too. With d_t, e_t the offsets of c_t and z_t from their encoded
values and u_t = tanh(c_t + d_t) - tanh(c_t), what f says of a sample's codes in time is, over mu,

    sum_t |e_t - V u_t|^2 + |d_t - W u_{t-1}|^2,        u_0 = 0.

Once e_t is known (z hears the loss directly), c_t meets three terms, with what the next code asks for, n_t = d_{t+1}:

    |e_t - V u_t|^2 + |n_t - W u_t|^2 + |d_t|^2.

That is the objective of any code below a block, here tanh followed by V and W side by side. The step that lowers it is
that of `GradientCodes`; a sweep says in which order the steps of time take it.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import Linear, Map, Params, Recurrence, Steps, vectorised
from altmin.calculus.products import matmul
from altmin.chain import Block, Chain, State, Theta
from altmin.codes.gradient import GradientCodes, Local, Trace
from altmin.codes.linesearch import HALVINGS, Above, Doubts, FitAbove, Mu
from altmin.objective import Evaluation

SWEEPS = ("parallel", "sequential")
CACHE = 2**18
"""Entries of a tensor that, with a few like it, stays in a processor's cache."""


class RecurrentCodes(GradientCodes):
    """Codes in time by one of two sweeps; all other codes, and the options, as in `GradientCodes`.

    sweep="sequential": from the last step to the first, each code seeing the one after it where it has moved to. With
    lr="exact" each step lowers its three terms, the only ones of f that it touches, so f never rises.

    sweep="parallel": all codes at once from their encoded values, in `rounds` rounds without a loop over time. In the
    first round no code has moved yet, n_t = 0; in each later one n_t is where the next code stood after the last round.
    So error travels one step back per round, and as many rounds as steps give the sequential sweep. Codes that move
    together also meet in |d_t - W u_{t-1}|^2: with lr="exact" a sample's offsets are halved until f does not rise. With
    l1 only each code's own terms are checked.
    """

    def __init__(
        self,
        sweep: str = "parallel",
        rounds: int = 1,
        steps: int = 1,
        lr: float | str = "exact",
        momentum: float = 0.0,
        tolerance: float = 0.0,
        l1: float = 0.0,
    ):
        super().__init__(steps, lr, momentum, tolerance, l1)
        if sweep not in SWEEPS:
            raise ValueError(f'the sweep over time is "parallel" or "sequential", given {sweep!r}')
        if not rounds >= 1:
            raise ValueError(f"a parallel sweep takes at least one round, given rounds={rounds!r}")
        if sweep == "sequential" and rounds != 1:
            raise ValueError(f'rounds belong to sweep="parallel"; a sequential sweep is one pass, given {rounds!r}')
        self.sweep, self.rounds = sweep, rounds
        self._spare: dict[int, dict[str, Tensor]] = {}

    def __repr__(self) -> str:
        return f"RecurrentCodes({self.sweep!r}, rounds={self.rounds}, steps={self.steps}, lr={self.lr!r})"

    def check(self, chain: Chain) -> None:
        """Complains of a chain in which codes in time are not followed by a block that sees each step by itself."""
        for l, (below, block) in enumerate(itertools.pairwise(chain), start=1):
            stepwise = not block.prelude.maps and isinstance(block.core.maps[0], Linear | Recurrence)
            if isinstance(below.core.maps[0], Recurrence) and not (stepwise and l < len(chain) - 1):
                last = ", which is the last block" if l == len(chain) - 1 else ""
                raise ValueError(
                    "after Recurrent comes a linear map of every step, altmin.Readout or another Recurrent, "
                    f"and then at least one block more; given {block}{last}"
                )

    def give_way(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above, mu: Mu) -> tuple[Local, Above]:
        """As in `GradientCodes`; but a code in time also changes what its own block gets, h_{t-1}, and leaves less than
        its offset for that block to fit."""
        if not isinstance(chain.blocks[l - 1].core.maps[0], Recurrence):
            return super().give_way(chain, theta, trace, l, above, mu)
        above = above.plain()
        trace.values.pop()
        seen = trace.states.pop().core[0]  # by the block above: h, or the memory of another recurrent layer
        steps: Steps = trace.states[-1].core[0]
        asked = above.start.force.transpose(0, 1).contiguous()
        spare = self._spare.setdefault(l, {})
        time = Time(steps, asked, above.start.values, theta[l][0], theta[l - 1][1], spare, above.doubts)
        settled = self._sweep(time, self.l1 * above.price / mu if self.l1 else None)
        trace.states[-1].core[0] = steps._replace(h=settled.h)
        misfit, left, h = (t.transpose(0, 1) for t in (settled.misfit, settled.left, settled.h))
        core = seen._replace(x=settled.h) if isinstance(seen, Steps) else h
        after = Evaluation(misfit, settled.misfits, misfit, None)
        asks = FitAbove(left, settled.lefts, above.scale, settled.moved, above.doubts)
        return Local([core], above.served(), after), asks

    def _sweep(self, time: "Time", l1: Mu | None) -> "Settled":
        if self.sweep == "sequential":
            return time.settle(*self._sequential(time, l1))
        settled = time.settle(*self._parallel(time, l1))
        if self.lr != "exact" or l1 is not None:
            return settled
        share = torch.ones_like(settled.moved)
        for left in reversed(range(HALVINGS)):
            # sums over many steps, taken in another order than at the start, differ by more than one rounding
            rose = settled.misfits + settled.lefts > time.start * (1 + 64 * torch.finfo(share.dtype).eps)
            if not time.doubts.confirmed(rose):
                break
            share = torch.where(rose, share / 2 if left > 1 else 0, share)
            d, moved = self._parallel(time, l1)
            settled = time.settle(d.mul_(share.unsqueeze(1)), moved * share.square())
        return settled

    def _parallel(self, time: "Time", l1: Mu | None) -> tuple[Tensor, Tensor]:
        """The offsets d (steps, samples, hidden) after all rounds, and |d|^2 of each sample."""
        d = None
        for _ in range(self.rounds):
            n = None if d is None else torch.cat([d[1:], torch.zeros_like(d[:1])])
            if self.lr == "exact" and self.steps == 1 and l1 is None:
                d, moved = time.glide(n)
            else:
                d, moved = self._lower(time, slice(None), n, l1)
        assert d is not None
        return d, moved

    def _sequential(self, time: "Time", l1: Mu | None) -> tuple[Tensor, Tensor]:
        d, moved = torch.zeros_like(time.h), torch.zeros_like(time.start)
        for t in reversed(range(len(d))):
            n = d[t + 1 :][:1] if t + 1 < len(d) else None
            d[t : t + 1], square = self._lower(time, slice(t, t + 1), n, l1)
            moved += square
        return d, moved

    def _lower(self, time: "Time", span: slice, n: Tensor | None, l1: Mu | None) -> tuple[Tensor, Tensor]:
        """The code steps of `GradientCodes` for a span of time, every sample at every step by itself."""
        h = time.h[span]
        n = torch.zeros_like(h) if n is None else n
        rows, asked = h.flatten(0, 1), torch.cat([time.asked[span], n], 2).flatten(0, 1)
        block = Block([TanhFromOutput(nn.Tanh())], [SideBySide(time.follows[span].flatten(0, 1))])
        code = torch.atanh(rows.clamp(-1 + 1e-6, 1 - 1e-6)) if l1 is not None else rows
        above = FitAbove(asked, doubts=time.doubts)
        move = self.descend(block, (time.V, time.W), State([rows], rows, [rows]), code, above, l1)
        return move.offset.view_as(h), move.square.view(h.shape[:2]).sum(0)


class Settled(NamedTuple):
    """The codes in time after a sweep: the new h_t; misfit e_t - V u_t and what is left for the weights of the
    recurrent block to fit, d_t - W u_{t-1}; the squares of both and of d, one for each sample."""

    h: Tensor
    misfit: Tensor
    left: Tensor
    misfits: Tensor
    lefts: Tensor
    moved: Tensor


class Time:
    """The objective of a batch's codes in time, all tensors (steps, samples, features).

    e is what z_t is to move by, start the value for codes that do not move, one for each sample. On a GPU these small
    functions are bound by the number of their operations, on a CPU by their passes over memory; both are kept low.
    """

    def __init__(
        self,
        steps: Steps,
        e: Tensor,
        start: Tensor,
        V: Tensor,
        W: Tensor,
        spare: dict[str, Tensor],
        doubts: Doubts,
    ):
        self.h, self.V, self.W, self.K, self.real, self.spare = steps.h, V, W, torch.cat([V, W]), steps.real, spare
        self.e, self.start, self.ones, self.doubts = e, start, e.new_ones(len(self.K), 1), doubts
        self.asked = e if steps.real is None else e * steps.real  # of c_t, which padding has none

    @cached_property
    def follows(self) -> Tensor:
        """1 where a step is followed by another, so that W u_t matters."""
        real = torch.ones_like(self.h[..., :1]) if self.real is None else self.real
        return torch.cat([real[1:], torch.zeros_like(real[:1])])

    def spans(self) -> Iterator[slice]:
        """Pieces of time, small enough for a processor's cache; the whole on a GPU."""
        steps = len(self.h)
        size = steps if self.h.is_cuda else max(1, CACHE // self.h[0].numel())
        return (slice(t, t + size) for t in range(0, steps, size))

    def room(self, name: str) -> Tensor:
        """A tensor like h. On a CPU that of the last step is written anew: fresh memory costs more than arithmetic."""
        old = self.spare.get(name)
        if old is None or (old.shape, old.dtype, old.device) != (self.h.shape, self.h.dtype, self.h.device):
            old = torch.empty_like(self.h)
        if not self.h.is_cuda and not vectorised():
            self.spare[name] = old
        return old

    def glide(self, n: Tensor | None) -> tuple[Tensor, Tensor]:
        """The best step of each code, were tanh linear, along its gradient g_t = s_t (V^T e_t + W^T n_t) with
        s_t = 1 - h_t^2; and |d|^2 of each sample. As |g_t|^2 = <e_t, V u_t> + <n_t, W u_t> with u_t = s_t g_t, it costs
        no pass over memory."""
        d, moved, k = self.room("d"), [], len(self.V)
        alone = n is None and k == 1  # then e_t is only a factor, to be put in later
        for span in self.spans():
            h, e = self.h[span], self.asked[span]
            asked = self.V.expand_as(h) if alone else matmul(e, self.V)
            if n is not None:
                asked += matmul(n[span], self.W)
            g = _times_slope(asked, h)
            Ku = matmul(_times_slope(g, h), self.K.mT)
            Vu, Wu = Ku[..., :k], Ku[..., k:]
            gg = Vu if alone else (e * Vu).sum(2, keepdim=True)
            if n is not None:
                gg = gg + (n[span] * Wu).sum(2, keepdim=True)
            gg = gg.clamp_min(0)  # rounding
            bend = gg + self.squares(Ku)
            if self.real is not None:
                bend -= (1 - self.follows[span]) * self.squares(Wu)
            elif span.stop >= len(d):
                bend[-1] = gg[-1] + Vu[-1].square().sum(1, keepdim=True)
            alpha = gg / bend.clamp_min_(torch.finfo(h.dtype).tiny)
            alpha = alpha.mul_(e) if alone else alpha
            _write(torch.mul, g, alpha, d[span])
            moved.append(gg.mul_(alpha.square()).sum((0, 2)))
        return d, sum(moved[1:], moved[0])

    def settle(self, d: Tensor, moved: Tensor) -> Settled:
        """All terms for given offsets, which are used up."""
        h, misfit, k = self.room("h"), torch.empty_like(self.e), len(self.V)
        lefts, asked = [], None
        for span in self.spans():
            left = d[span]
            u = _change(self.h[span], left)
            _write(torch.add, self.h[span], u, h[span])
            Ku = matmul(u, self.K.mT)
            _write(torch.sub, self.e[span], Ku[..., :k], misfit[span])
            left[1:] -= Ku[:-1, :, k:]
            if asked is not None:
                left[0] -= asked
            asked = Ku[-1, :, k:]
            if self.real is not None:
                left *= self.real[span]
            lefts.append(self.squares(left).sum((0, 2)))
        return Settled(h, misfit, d, misfit.square().sum((0, 2)), sum(lefts[1:], lefts[0]), moved)

    def squares(self, u: Tensor) -> Tensor:
        """|u|^2 at each step of each sample: a product, which is faster than a sum over a short last dimension."""
        return (u * u) @ self.ones[: u.shape[-1]]


class TanhFromOutput(Map):
    """tanh, remembered by its value y alone: tanh(x + u) = (y + tanh u) / (1 + y tanh u)."""

    def pull(self, p: Params, saved: Tensor, v: Tensor) -> Tensor:
        return _times_slope(v, saved)

    push = pull

    def move(self, p: Params, saved: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        change = _change(saved, u)
        return change, saved + change


class SideBySide(Linear):
    """V h and, where another step follows, W h."""

    def __init__(self, follows: Tensor):
        super().__init__(nn.Identity())
        self.names, self.follows = ("V", "W"), follows

    def pull(self, p: Params, saved: Tensor, v: Tensor) -> Tensor:
        V, W = p
        return matmul(v[:, : len(V)], V) + self.follows * matmul(v[:, len(V) :], W)

    def push(self, p: Params, saved: Tensor, u: Tensor) -> Tensor:
        V, W = p
        return torch.cat([matmul(u, V.mT), self.follows * matmul(u, W.mT)], 1)


def _write(operation: Callable[..., Tensor], a: Tensor, b: Tensor, out: Tensor) -> None:
    """out = operation(a, b), in one pass over memory where that can be."""
    if vectorised():
        out.copy_(operation(a, b))
    else:
        operation(a, b, out=out)


def _change(h: Tensor, d: Tensor) -> Tensor:
    """tanh(c + d) - tanh(c) without cancellation, from h = tanh(c)."""
    v = torch.tanh(d)
    return _times_slope(v, h).div_(torch.addcmul(h.new_ones(()), h, v))


def _times_slope(v: Tensor, h: Tensor) -> Tensor:
    """(1 - h^2) v in one pass over memory."""
    return torch.ops.aten.tanh_backward(v, h)
