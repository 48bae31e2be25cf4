"""Every way to train, behind one protocol."""

from altmin.calculus.context import LOCAL, Context
from altmin.methods import (  # noqa: F401  (they register their methods)
    admm,
    alternating,
    backprop,
    bcd,
    dtp,
    gauss_newton,
    muon,
    offline,
    pc_alm,
    predictive_coding,
    printed,
    proxprop,
    straight_through,
)
from altmin.methods.protocol import Method, create, factory, names, options, register

__all__ = ["LOCAL", "Context", "Method", "create", "factory", "names", "options", "register"]
