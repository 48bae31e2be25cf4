"""Code solvers for activations without derivatives: a search over their values, and the straight-through estimate."""

from torch import Tensor

from altmin.calculus import Discrete, Params, StandIn
from altmin.chain import Block, Chain, State, Theta
from altmin.codes.gradient import GradientCodes, Local, Trace, top_down
from altmin.codes.linesearch import Above, Doubts, FitAbove, LossAbove, Move, Mu
from altmin.codes.search import Search, lacks_derivative
from altmin.errors import unknown
from altmin.objective import Evaluation, dot


class HingeAbove(FitAbove):
    """The term above a code that is asked for a side only: sum_j max(0, e_j (v_j - c_j)).

    v_j is the level asked for and e_j = +1 or -1 the side from which c_j should come to it; 0 where nothing is asked.
    Its force, half of minus the gradient like that of a fit, is of one size for all units.
    """

    shrinks = glides = False
    spared = None

    def __init__(self, code: Tensor, v: Tensor, e: Tensor, doubts: Doubts):
        self.v, self.e, self.scale, self.doubts = v, e, 1.0, doubts
        self.start = self._at(code)
        d = (e * (v - code)).clamp_min_(0)
        self._moved = dot(d, d)  # of the offset that would leave nothing to ask for

    def _at(self, c: Tensor) -> Evaluation:
        gap = (self.e * (self.v - c)).clamp_min_(0)
        return Evaluation(c, gap.flatten(1).sum(1), self.e * (gap > 0) / 2, None)

    def served(self) -> "HingeAbove":
        return self

    def shift(self, at: Evaluation, dy: Tensor) -> Evaluation:
        return self._at(at.output + dy)


class DiscreteCodes:
    """A search over the values of discrete activations, with no derivative of theirs: search.py has the objective E.

    amplify: how strongly the code above asks. sweeps: of the search. residual: "hinge" asks a code for a side of its
    threshold, every unit with the same force; "squared" for the value of its new level. gradient: how codes below other
    activations move.

    No sample's E ever rises. What is found is asked of the code below, and no more than asked: until its own weights
    have brought it across a threshold, the block above goes on with the activation as it is.
    """

    def __init__(
        self,
        amplify: float = 2.0,
        sweeps: int = 1,
        residual: str = "hinge",
        gradient: GradientCodes | None = None,
    ):
        if not amplify > 0:
            raise ValueError(f"amplify of DiscreteCodes must be above 0, given {amplify!r}")
        if not sweeps >= 1:
            raise ValueError(f"sweeps of DiscreteCodes must be at least 1, given {sweeps!r}")
        if residual not in ("hinge", "squared"):
            raise unknown("residual of DiscreteCodes,", residual, ["hinge", "squared"])
        self.amplify, self.sweeps, self.residual = amplify, sweeps, residual
        self.gradient = gradient or GradientCodes()

    def __repr__(self) -> str:
        return f"DiscreteCodes(amplify={self.amplify}, sweeps={self.sweeps}, residual={self.residual!r})"

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: LossAbove, mu: Mu) -> list[Local]:
        """Sets the codes from the last to the first; returns every block's local problem, first to last."""
        return top_down(self, chain, theta, trace, top, mu)

    def give_way(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above, mu: Mu) -> tuple[Local, Above]:
        """What block l is left with, and what the code below it asks of its own block."""
        block = chain.blocks[l]
        if not lacks_derivative(block):
            return self.gradient.give_way(chain, theta, trace, l, above, mu)
        above = above.plain()
        at = above.start
        state, code = trace.states.pop(), trace.values.pop()
        search = Search(block, theta[l], state, at.force, self.amplify)
        for _ in range(self.sweeps):
            search.sweep()
        v, e = search.asked()
        hinge = self.residual == "hinge"
        asks = HingeAbove(code, v, e, above.doubts) if hinge else FitAbove((v - code) * e.abs(), doubts=above.doubts)
        return Local(state.core, above.served(), at), asks


class StraightThroughCodes(GradientCodes):
    """Gradient steps in which the derivative of a discrete activation is taken as 1 where |c| <= 1 and as 0 elsewhere.

    A step has the length that is best by this estimate; what it does to the activation is what it really does. It can
    raise f, and is taken all the same. Other codes move as with `GradientCodes`, whose options these are.
    """

    def __repr__(self) -> str:
        return super().__repr__().replace("GradientCodes", "StraightThroughCodes")

    def descend(self, block: Block, p: Params, state: State, code: Tensor, above: Above, l1: Mu | None = None) -> Move:
        return super().descend(stand_in(block), p, state, code, above, l1)


def stand_in(block: Block) -> Block:
    """The block with the straight-through estimate in place of a derivative that it lacks."""
    if not lacks_derivative(block):
        return block
    return Block([StandIn(m) if isinstance(m, Discrete) else m for m in block.prelude.maps], block.core.maps)
