"""Every way to train, behind one protocol."""

from altmin.methods import backprop  # noqa: F401  (registers its methods)
from altmin.methods.protocol import Method, create, factory, names, register

__all__ = ["Method", "create", "factory", "names", "register"]
