"""The public names of the package, which imports them from here when the first one is used."""

from altmin import continual, data, methods, models, training
from altmin.common.errors import Diverged
from altmin.core.chain import Chain
from altmin.core.codes.discrete import DiscreteCodes, StraightThroughCodes
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.recurrent import RecurrentCodes
from altmin.core.cutting import split
from altmin.core.objective import objective
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, Metrics
from altmin.core.weights.local import LocalAdam, LocalOptimizer, LocalSGD
from altmin.core.weights.memory import CoActivationMemory
from altmin.core.weights.rule import WeightRule
from altmin.core.weights.sums import FittedMemory
from altmin.explaining import Audit, Explanation, audit, explain
from altmin.layers import Readout, Recurrent, Sign, Staircase, StraightThrough
from altmin.runners.distributed import Distributed
from altmin.runners.ensemble import Ensemble, EnsembleMetrics
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.recorded import Recorded
from altmin.training import fit

__all__ = [
    "AltMin",
    "Audit",
    "Chain",
    "CoActivationMemory",
    "DiscreteCodes",
    "Distributed",
    "Diverged",
    "Ensemble",
    "EnsembleMetrics",
    "Explanation",
    "FittedMemory",
    "GradientCodes",
    "LayerParallel",
    "LocalAdam",
    "LocalOptimizer",
    "LocalSGD",
    "Metrics",
    "Penalty",
    "Readout",
    "Recorded",
    "Recurrent",
    "RecurrentCodes",
    "Sign",
    "Staircase",
    "StraightThrough",
    "StraightThroughCodes",
    "WeightRule",
    "audit",
    "continual",
    "data",
    "explain",
    "fit",
    "methods",
    "models",
    "objective",
    "split",
    "training",
]
