"""Code solvers for activations without derivatives: a search over their values, and the straight-through estimate."""

from collections.abc import Iterator

from torch import Tensor

from altmin.calculus import Discrete, Params, StandIn
from altmin.calculus.numbers import inner, over, root
from altmin.common.errors import demand, unknown
from altmin.core.chain import Block, Chain, State, Theta
from altmin.core.codes.above import Above, Ask, Residual, Top
from altmin.core.codes.gradient import GradientCodes, Trace, top_down
from altmin.core.codes.phases import Pull
from altmin.core.codes.search import Search, lacks_derivative

RESIDUALS = ("hinge", "squared")


class DiscreteCodes:
    """A search over the values of discrete activations, with no derivative of theirs: search.py has the objective E.

    amplify: how strongly the code above asks. sweeps: of the search. residual: how a code asks its own block for the
    levels v that were found, which c comes to from the sides e. "hinge": by the gradient of

        sum_j max(0, e_j (v_j - c_j)),

    the same for all units but for its sign; each of them moves by the root mean square of their gaps e_j (v_j - c_j).
    "squared": by that of sum_j (v_j - c_j)^2 / 2, larger for units that are farther away; they move to v. Both have the
    norm of a straight-through gradient, that of W^T delta where |c| <= 1. gradient: the solver of codes below other
    activations; its order holds for all blocks.

    No sample's E ever rises. The block above goes on with the activation as it is, and keeps all that is asked of it,
    until the weights below have brought a code across its threshold.
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
        self.order = self.gradient.order

    def __repr__(self) -> str:
        options = (
            f"amplify={self.amplify}, sweeps={self.sweeps}, residual={self.residual!r}, gradient={self.gradient!r}"
        )
        return f"DiscreteCodes({options})"

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: Top) -> Iterator[tuple[int, Residual]]:
        """Sets the codes from the last to the first; yields every block's number and residual on the way."""
        return top_down(self, chain, theta, trace, top)

    def move(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above) -> tuple[Residual, Ask]:
        """What block l is left with, and what the code below it asks of its own block."""
        block = chain.blocks[l]
        if not lacks_derivative(block):
            return self.gradient.move(chain, theta, trace, l, above)
        state, code = trace.states.pop(), trace.values.pop()
        search = Search(block, theta[l], state, -above.delta, self.amplify)
        for _ in range(self.sweeps):
            search.sweep()
        return above.residual(state.core, above.start, self.order), self.ask(search, code)

    def ask(self, search: Search, code: Tensor) -> Ask:
        """What a code asks of its own block, given the search over its activation."""
        v, e = search.asked()
        gap = e * (v - code)
        u = e * gap if self.residual == "squared" else e
        uu = inner(u, u)
        size = root(over(search.square, uu))
        square = size * size * uu
        scale = root(over(inner(gap, gap), square))
        return Ask(u * -size, square, scale, scale)


class StraightThroughCodes(GradientCodes):
    """Gradient steps in which the derivative of a discrete activation is taken as 1 where |c| <= 1 and as 0 elsewhere.

    A step has the length that is best by this estimate, and is not judged by f. As with `DiscreteCodes`, the block
    above goes on with the activation as it is and keeps all that is asked of it. Other codes move as with
    `GradientCodes`, whose options these are.
    """

    def descend(
        self, block: Block, p: Params, state: State, code: Tensor, above: Above, pull: Pull | None = None
    ) -> tuple[Residual, Ask]:
        return super().descend(stand_in(block), p, state, code, above, pull)


def stand_in(block: Block) -> Block:
    """The block with the straight-through estimate in place of a derivative that it lacks."""
    if not lacks_derivative(block):
        return block
    return Block([StandIn(m) if isinstance(m, Discrete) else m for m in block.prelude.maps], block.core.maps)
