"""Code solvers for activations without derivatives: a search over their values, and the straight-through estimate."""

from torch import Tensor

from altmin.calculus import Discrete, StandIn
from altmin.calculus.context import Context
from altmin.calculus.numbers import safe_div
from altmin.common.errors import demand, unknown
from altmin.core.chain import Block
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.links import Above, Moves, Segment, Upstream, joined, unmoved
from altmin.core.codes.search import Search, lacks_derivative

RESIDUALS = ("hinge", "squared")


class DiscreteCodes:
    """A search over the values of discrete activations, without their derivatives; search.py defines the objective E.

    amplify: the weight of the code above. sweeps: the number of sweeps of the search. residual: the loss that moves a
    code's own block to the levels v found, which c approaches from the sides e. "hinge": by the gradient of

        sum_j max(0, e_j (v_j - c_j)),

    the same for all units but for its sign; each of them moves by the root mean square of their gaps e_j (v_j - c_j).
    "squared": by that of sum_j (v_j - c_j)^2 / 2, larger for units that are farther away; they move to v. Both have the
    norm of a straight-through gradient, that of W^T delta where |c| <= 1. gradient: the solver of codes below other
    activations; its order holds for all blocks.

    No sample's E ever rises. The block above uses the activation as it is, and keeps its whole target, until the
    weights below have moved a code across its threshold.
    """

    def __init__(
        self,
        amplify: float = 2.0,
        sweeps: int = 1,
        residual: str = "hinge",
        gradient: GradientCodes | None = None,
    ):
        demand("DiscreteCodes", "amplify", amplify, above=True)
        demand("DiscreteCodes", "sweeps", sweeps, low=1, whole=True)
        if residual not in RESIDUALS:
            raise unknown("residual of DiscreteCodes,", residual, RESIDUALS)
        self.amplify, self.sweeps, self.residual = amplify, sweeps, residual
        self.gradient = gradient or GradientCodes()

    @property
    def order(self) -> str:
        return self.gradient.order

    __repr__ = GradientCodes.__repr__

    def __call__(self, segment: Segment, above: Above) -> Moves:
        """Sets the codes below the blocks of a segment, from the last to the first."""
        searched = [lacks_derivative(block) for block in segment.blocks]
        searched[0] = searched[0] and not segment.begins
        parts, end = [], len(searched)
        while end:
            first = end - 1
            if not searched[first]:
                while first and not searched[first - 1]:
                    first -= 1
            part = segment.part(first, end)
            parts.append(self.search(part, above) if searched[first] else self.gradient(part, above))
            above, end = parts[-1].below or above, first
        return joined(parts)

    def search(self, segment: Segment, above: Above) -> Moves:
        """Sets the code below a single block."""
        (block,), (p,), (code,), (state,), context, *_ = segment
        search = Search(block, p, state, -above.delta, self.amplify, context)
        for _ in range(self.sweeps):
            search.sweep()
        return unmoved(segment, above)._replace(below=self.wanted(search, code, context))

    def wanted(self, search: Search, code: Tensor, context: Context) -> Upstream:
        """The target that a code sets for its own block, given the search over its activation."""
        v, e = search.target()
        gap = e * (v - code)
        u = e * gap if self.residual == "squared" else e
        uu, gaps = context.inners([(u, u), (gap, gap)])
        size = safe_div(search.square, uu).sqrt()
        square = size * size * uu
        scale, delta = safe_div(gaps, square).sqrt(), u * -size
        return Upstream(delta, scale, scale, delta, square)


class StraightThroughCodes(GradientCodes):
    """Gradient steps in which the derivative of a discrete activation is taken as 1 where |c| <= 1 and as 0 elsewhere.

    A step has the length that is best by this estimate, and is not checked by f. As with `DiscreteCodes`, the block
    above uses the activation as it is and keeps its whole target. Other codes move as with
    `GradientCodes`, whose options these are.
    """

    def __call__(self, segment: Segment, above: Above) -> Moves:
        return super().__call__(segment._replace(blocks=[stand_in(block) for block in segment.blocks]), above)


def stand_in(block: Block) -> Block:
    """The block with the straight-through estimate in place of a derivative that it lacks."""
    if not lacks_derivative(block):
        return block
    return Block([StandIn(m) if isinstance(m, Discrete) else m for m in block.prelude.maps], block.core.maps)
