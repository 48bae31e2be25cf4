"""Layers of our own: activations without derivatives, recurrent and residual layers."""

from altmin.layers.modules import (
    Readout,
    Recurrent,
    Residual,
    Scale,
    Sign,
    Staircase,
    Stepwise,
    StraightThrough,
    View,
    no_derivative,
    straight_through,
)

__all__ = [
    "Readout",
    "Recurrent",
    "Residual",
    "Scale",
    "Sign",
    "Staircase",
    "Stepwise",
    "StraightThrough",
    "View",
    "no_derivative",
    "straight_through",
]
