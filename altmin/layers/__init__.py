"""Layers of the library's own."""

from altmin.layers.discrete import (
    Committed,
    Sign,
    Staircase,
    Stepwise,
    StraightThrough,
    committed,
    no_derivative,
    straight_through,
)
from altmin.layers.few_bits import QuantisedConv2d, QuantisedLinear
from altmin.layers.in_time import (
    GatedScan,
    Last,
    LastReal,
    LayerDropout,
    Outputs,
    Readout,
    Recurrent,
    RecurrentLayer,
)
from altmin.layers.other import Residual, Scale, View
from altmin.layers.recurrence import opaque_recurrence, recurrence

__all__ = [
    "Committed",
    "GatedScan",
    "Last",
    "LastReal",
    "LayerDropout",
    "Outputs",
    "QuantisedConv2d",
    "QuantisedLinear",
    "Readout",
    "Recurrent",
    "RecurrentLayer",
    "Residual",
    "Scale",
    "Sign",
    "Staircase",
    "Stepwise",
    "StraightThrough",
    "View",
    "committed",
    "no_derivative",
    "opaque_recurrence",
    "recurrence",
    "straight_through",
]
