"""Codes in time, of a recurrent layer: c_t = U x_t + W h_{t-1} + b at every step, and h is a function of all of them,
tanh(c_t) in an Elman network (`calculus.recurrent`).

Let F be the block above, J its Jacobian at h, and delta the gradient at its output. All steps of time move as one code,
by -m g with one length for the mini-batch, along the gradient of backprop through time; with tanh, and e = J^T delta,

    g_t = s_t (e_t + W^T g_{t+1}),        s_t = 1 - h_t^2.

With q the derivative of h along g, every code of its own, the block's output moves by J q, and the distance between a
code and the value that its own layer gives it grows by g_t - W q_{t-1}, q_0 = 0. Length, residuals and rejection are
those of all codes (`codes.gradient`); the residual of the recurrent layer's weights is g_t - W q_{t-1} or, if weights
go first, g_t: then these are the deltas of backprop through time.
"""

from collections.abc import Sequence

from torch import Tensor

from altmin.calculus.recurrent import Recurrence
from altmin.core.chain import Chain
from altmin.core.codes.discrete import lacks_derivative
from altmin.core.codes.gradient import Direction, GradientCodes
from altmin.core.codes.problem import Encoded

SWEEPS = ("exact", "parallel")


class RecurrentCodes(GradientCodes):
    """One exact step of codes in time, along one of two sweeps; all other codes, and share and order, as in
    `GradientCodes`.

    sweep="exact": the direction g of backprop through time, from the last step to the first (`calculus.sweep`).

    sweep="parallel": of Elman layers, an approximation over all steps at once, without a loop over time: g_{t+1} is 0,
    which is backprop through time truncated to one step.
    """

    def __init__(self, sweep: str = "exact", share: float = 0.1, order: str = "weights-first"):
        super().__init__(share=share, order=order)
        if sweep not in SWEEPS:
            raise ValueError(f'the sweep over time is "exact" or "parallel", given {sweep!r}')
        self.sweep = sweep

    def __repr__(self) -> str:
        return f"RecurrentCodes({self.sweep!r}, share={self.share!r}, order={self.order!r})"

    def check(self, chain: Chain) -> None:
        """Raise ValueError for codes in time that these sweeps do not move: below an activation without a derivative,
        and, for the parallel sweep, in gated layers."""
        for l, block in enumerate(chain):
            layer = block.core.maps[0]
            if not isinstance(layer, Recurrence):
                continue
            name = layer.module._get_name()
            above = chain.blocks[l + 1]
            if lacks_derivative(above) or above.estimated:
                raise ValueError(
                    f"an activation without a derivative follows {name}, whose codes in time no search moves; put a "
                    "Linear between them"
                )
            if self.sweep == "parallel" and not (isinstance(layer, Recurrence) and layer.mode == "RNN_TANH"):
                raise ValueError(f'sweep="parallel" is for Elman layers, given {name}; use sweep="exact"')

    def direction(self, above: Encoded, delta: Tensor, below: Sequence[Encoded]) -> Direction:
        """As in `GradientCodes`; codes in time also change the input of their own block, h_{t-1}."""
        layer = below[0].block.core.maps[0] if below else None
        if not isinstance(layer, Recurrence):
            return super().direction(above, delta, below)
        p, (steps,) = below[0].p, below[0].saved.core
        activation = layer.activation(p, steps)
        g = activation.sweep(above.block.vjp(above.p, above.saved, delta), self.sweep == "parallel")
        q = activation.jvp(g)
        gap = g - layer.feedback(p, steps, q)
        moved = above.block.jvp(above.p, above.saved, q)
        return Direction(q, moved, gap, gap if self.order == "codes-first" else g)
