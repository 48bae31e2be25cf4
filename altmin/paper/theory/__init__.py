"""The convergence theorem of the paper, corrected and measured (docs/theory.md)."""

from altmin.paper.theory.bounds import bound, expanded, recursion, step_size
from altmin.paper.theory.checks import Check, contraction, crossing, one_step, operator, slow_direction
from altmin.paper.theory.constants import Assumption, Constants
from altmin.paper.theory.network import Network
from altmin.paper.theory.quadratic import Quadratic, family
from altmin.paper.theory.schedule import TheoremSchedule, step_size_schedule
from altmin.paper.theory.scheme import Adam, Decay, Measured, Stack, rule_of, run, simulate

__all__ = [
    "Adam",
    "Assumption",
    "Check",
    "Constants",
    "Decay",
    "Measured",
    "Network",
    "Quadratic",
    "Stack",
    "TheoremSchedule",
    "bound",
    "contraction",
    "crossing",
    "expanded",
    "family",
    "one_step",
    "operator",
    "recursion",
    "rule_of",
    "run",
    "simulate",
    "slow_direction",
    "step_size",
    "step_size_schedule",
]
