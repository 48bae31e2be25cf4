"""Train neural networks without backpropagation, by online alternating minimization."""

from altmin import startup  # noqa: F401  (before torch is imported, which takes a second)

# isort: split
from altmin import continual, data, methods, models, theory, training
from altmin.audit import Audit, audit
from altmin.chain import Chain, split
from altmin.codes.discrete import DiscreteCodes, StraightThroughCodes
from altmin.codes.gradient import GradientCodes
from altmin.codes.recurrent import RecurrentCodes
from altmin.errors import Diverged
from altmin.execution.distributed import Distributed
from altmin.execution.ensemble import Ensemble, EnsembleMetrics
from altmin.execution.layer_parallel import LayerParallel
from altmin.explaining import Explanation, explain
from altmin.layers import Readout, Recurrent, Sign, Staircase, StraightThrough
from altmin.objective import objective
from altmin.penalty import Penalty
from altmin.trainer import AltMin, Metrics
from altmin.training import fit
from altmin.weights.local import LocalAdam, LocalOptimizer, LocalSGD
from altmin.weights.memory import CoActivationMemory, Memory

__version__ = "0.2.0.dev0"
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
    "GradientCodes",
    "LayerParallel",
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
    "continual",
    "data",
    "explain",
    "fit",
    "methods",
    "models",
    "objective",
    "split",
    "theory",
    "training",
]
