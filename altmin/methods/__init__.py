"""Every way to train, behind one protocol."""

from altmin.calculus.context import LOCAL, Context
from altmin.methods import alternating, backprop, coactivation, gauss_newton, muon, rivals  # noqa: F401  (they register methods)
from altmin.methods.protocol import Method, create, factory, names, options, register

__all__ = ["LOCAL", "Context", "Method", "create", "factory", "names", "options", "register"]
