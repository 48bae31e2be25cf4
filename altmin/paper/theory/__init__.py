"""The convergence theorem of the paper, corrected and measured (docs/theory.md)."""

from altmin.paper.theory.bounds import bound, step_size
from altmin.paper.theory.checks import Check, contraction, crossing, one_step, operator, slow_direction
from altmin.paper.theory.constants import Assumption, Constants
from altmin.paper.theory.network import Network
from altmin.paper.theory.quadratic import Quadratic, family
from altmin.paper.theory.schedule import TheoremSchedule
from altmin.paper.theory.scheme import Measured, simulate

__all__ = [
    "Assumption",
    "Check",
    "Constants",
    "Measured",
    "Network",
    "Quadratic",
    "TheoremSchedule",
    "bound",
    "contraction",
    "crossing",
    "family",
    "one_step",
    "operator",
    "simulate",
    "slow_direction",
    "step_size",
]
