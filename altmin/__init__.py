"""Train neural networks without backpropagation, by online alternating minimization."""

from altmin import data, methods, models, theory
from altmin.activations import Sign, Staircase, StraightThrough
from altmin.audit import Audit, audit
from altmin.blocks import Chain, split
from altmin.codes import GradientCodes
from altmin.discrete import DiscreteCodes, StraightThroughCodes
from altmin.errors import Diverged
from altmin.execution.ensemble import Ensemble, EnsembleMetrics
from altmin.maps import Readout, Recurrent
from altmin.memory import CoActivationMemory, Memory
from altmin.objective import objective
from altmin.penalty import Penalty
from altmin.recurrent import RecurrentCodes
from altmin.trainer import AltMin, Metrics
from altmin.weights import LocalAdam, LocalOptimizer, LocalSGD

__version__ = "0.1.0"
__all__ = [
    "AltMin",
    "Audit",
    "Chain",
    "CoActivationMemory",
    "DiscreteCodes",
    "Diverged",
    "Ensemble",
    "EnsembleMetrics",
    "GradientCodes",
    "LocalAdam",
    "LocalOptimizer",
    "LocalSGD",
    "Memory",
    "Metrics",
    "Penalty",
    "Readout",
    "Recurrent",
    "RecurrentCodes",
    "Sign",
    "Staircase",
    "StraightThrough",
    "StraightThroughCodes",
    "audit",
    "data",
    "methods",
    "models",
    "objective",
    "split",
    "theory",
]
