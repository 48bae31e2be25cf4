"""Train neural networks without backpropagation, by online alternating minimization.

The public names are those of `altmin.public`. They are imported when the first one is used, since torch takes a second.
"""

from altmin.common import startup  # noqa: F401  (before all else, for Ctrl-C)

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"
_PACKAGES = (
    "continual",
    "data",
    "integrations",
    "methods",
    "models",
    "optim",
    "paper",
    "sklearn",
    "stream",
    "training",
)
"""Imported when they are first used, each by itself: some need libraries that not everybody has."""

if TYPE_CHECKING:
    from altmin import integrations, optim, paper, sklearn, stream  # noqa: F401
    from altmin.public import *  # noqa: F403
    from altmin.public import __all__ as __all__
else:

    def __getattr__(name):
        if name in _PACKAGES:
            try:
                return import_module(f"altmin.{name}")
            except ModuleNotFoundError as error:  # an AttributeError, so that `help(altmin)` passes it over
                raise AttributeError(str(error)) from error
        if name == "__all__" or not name.startswith("_"):
            public = import_module("altmin.public")
            if hasattr(public, name):
                return getattr(public, name)
        raise AttributeError(f"module 'altmin' has no attribute {name!r}")

    def __dir__():
        return sorted({*import_module("altmin.public").__all__, *_PACKAGES})
