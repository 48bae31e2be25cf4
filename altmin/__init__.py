"""Train neural networks without backpropagation, by online alternating minimization."""

from altmin.common import startup  # noqa: F401  (before torch is imported, which takes a second)

# isort: split
from importlib import import_module
from types import ModuleType

from altmin import continual, data, methods, models, training
from altmin.common.errors import Diverged
from altmin.core.chain import Chain, split
from altmin.core.codes.discrete import DiscreteCodes, StraightThroughCodes
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.recurrent import RecurrentCodes
from altmin.core.objective import objective
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, Metrics
from altmin.core.weights.fitted_memory import FittedMemory, Memory
from altmin.core.weights.local import LocalAdam, LocalOptimizer, LocalSGD
from altmin.core.weights.memory import CoActivationMemory
from altmin.core.weights.rule import WeightRule
from altmin.explaining import Explanation, explain
from altmin.explaining.audit import Audit, audit
from altmin.layers import Readout, Recurrent, Sign, Staircase, StraightThrough
from altmin.runners.distributed import Distributed
from altmin.runners.ensemble import Ensemble, EnsembleMetrics
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.recorded import Recorded
from altmin.training import fit

_ON_FIRST_USE = ("integrations", "optim", "paper", "sklearn", "stream")
"""Packages that are imported when they are first used: some need libraries that not everybody has."""

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
    "FittedMemory",
    "GradientCodes",
    "LayerParallel",
    "LocalAdam",
    "LocalOptimizer",
    "LocalSGD",
    "Memory",
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


def __getattr__(name: str) -> ModuleType:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'altmin' has no attribute {name!r}")
    try:
        return import_module(f"altmin.{name}")
    except ModuleNotFoundError as error:  # an AttributeError, so that `help(altmin)` passes it over
        raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted([*__all__, *_ON_FIRST_USE])
