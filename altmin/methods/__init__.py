"""Every way to train, behind one protocol."""

from altmin.methods import admm, alternating, backprop, bcd, offline  # noqa: F401  (they register their methods)
from altmin.methods.protocol import Method, create, factory, names, options, register

__all__ = ["Method", "create", "factory", "names", "options", "register"]
