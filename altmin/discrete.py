"""Code solvers for activations without derivatives: a search over their values, and the straight-through estimate."""

from typing import Any

from torch import Tensor

from altmin.activations import no_derivative
from altmin.blocks import Block, Chain, State, Theta
from altmin.codes import GradientCodes, Local, Trace, top_down
from altmin.errors import unknown
from altmin.linesearch import Above, FitAbove, LossAbove, Move
from altmin.maps import Discrete, Params, StandIn
from altmin.objective import Evaluation, dot
from altmin.search import Search, lacks_derivative, position


class HingeAbove(FitAbove):
    """The term above a code that is asked for a side only: sum_j max(0, e_j (v_j - c_j)).

    v_j is the level asked for and e_j = +1 or -1 the side from which c_j should come to it; 0 where nothing is asked.
    Its force, half of minus the gradient like that of a fit, is of one size for all units.
    """

    shrinks = False

    def __init__(self, code: Tensor, v: Tensor, e: Tensor):
        self.v, self.e, self.scale = v, e, 1.0
        self.start = self._at(code)
        d = (e * (v - code)).clamp_min_(0)
        self.moved = dot(d, d)

    def _at(self, c: Tensor) -> Evaluation:
        gap = (self.e * (self.v - c)).clamp_min_(0)
        return Evaluation(c, gap.flatten(1).sum(1), self.e * (gap > 0) / 2, None)

    def served(self) -> "HingeAbove":
        return self

    def shift(self, at: Evaluation, dy: Tensor, share: Tensor | float = 1.0) -> Evaluation:
        return self._at(at.output + share * dy)

    def glide(self, block: Block, p: Params, state: State) -> Move | None:
        return None


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

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: LossAbove, mu: float) -> list[Local]:
        """Sets the codes from the last to the first; returns every block's local problem, first to last."""
        return top_down(self, chain, theta, trace, top, mu)

    def give_way(
        self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above, mu: float
    ) -> tuple[Local, Above]:
        """What block l is left with, and what the code below it asks of its own block."""
        if not lacks_derivative(chain.blocks[l]):
            return self.gradient.give_way(chain, theta, trace, l, above, mu)
        state, code, at = trace.states.pop(), trace.values.pop(), above.start
        search = Search(chain.blocks[l], theta[l], state, at.force, self.amplify)
        for _ in range(self.sweeps):
            search.sweep()
        v, e = search.asked()
        asks = HingeAbove(code, v, e) if self.residual == "hinge" else FitAbove((v - code) * e.abs())
        return Local(state.core, above.served(), at), asks


class StraightThroughCodes(GradientCodes):
    """Gradient steps in which the derivative of a discrete activation is taken as 1 where |c| <= 1 and as 0 elsewhere.

    A step has the length that is best by this estimate; what it does to the activation is what it really does. It can
    raise f, and is taken all the same. Other codes move as with `GradientCodes`, whose options these are.
    """

    def __repr__(self) -> str:
        return super().__repr__().replace("GradientCodes", "StraightThroughCodes")

    def descend(self, block: Block, p: Params, state: State, code: Tensor, above: Above, l1: float = 0.0) -> Move:
        return super().descend(stand_in(block), p, state, code, above, l1)


def stand_in(block: Block) -> Block:
    """The block with the straight-through estimate in place of a derivative that it lacks."""
    if not lacks_derivative(block):
        return block
    return Block([StandIn(m) if isinstance(m, Discrete) else m for m in block.prelude.maps], block.core.maps)


SOLVERS = {"gradient": GradientCodes, "discrete": DiscreteCodes, "straight-through": StraightThroughCodes}


def choose(codes: Any, chain: Chain) -> Any:
    """The code solver for a chain: the one given or named; a number is a fixed gradient step; None the default.

    The default is `GradientCodes` or, if some activation has no derivative, `DiscreteCodes`.
    """
    for m in (m for block in chain for m in block.core.maps if isinstance(m, Discrete)):
        raise ValueError(
            f"{type(m.module).__name__} lies above the last layer, where the loss must be able to tell outputs apart; "
            "leave it out of the model and apply it to the model's output after training"
        )
    lacking = [block for block in chain.blocks[1:] if lacks_derivative(block)]
    if codes is None:
        codes = "discrete" if lacking else "gradient"
    if isinstance(codes, str):
        if codes not in SOLVERS:
            raise unknown("code solver", codes, SOLVERS)
        codes = SOLVERS[codes]()
    elif isinstance(codes, int | float):
        codes = GradientCodes(lr=codes)
    if lacking and type(codes) is GradientCodes:
        raise no_derivative(next(m.module for m in lacking[0].prelude.maps if isinstance(m, Discrete)))
    if isinstance(codes, DiscreteCodes):
        for block in lacking:
            position(block)
    return codes
