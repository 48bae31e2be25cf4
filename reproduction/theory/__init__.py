"""The convergence theorem of the paper, corrected and measured (docs/theory.md)."""

from reproduction.theory.checks import Check, contraction, crossing, one_step, operator, slow_direction
from reproduction.theory.network import Network
from reproduction.theory.quadratic import Quadratic, family
from reproduction.theory.scheme import Measured, simulate
from reproduction.theory.theorem import Assumption, Constants, TheoremSchedule, bound, step_size

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
