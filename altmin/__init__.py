"""Train neural networks without backpropagation, by online alternating minimization.

The public names are those of `altmin.public`. They are imported when the first one is used, since torch takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"
_ON_FIRST_USE = ("integrations", "optim", "sklearn", "stream")
"""Packages that are imported by themselves: some need libraries that not everybody has."""

if TYPE_CHECKING:
    from altmin import integrations, optim, sklearn, stream  # noqa: F401
    from altmin.public import *  # noqa: F403
    from altmin.public import __all__ as __all__
else:

    def __getattr__(name):
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'altmin' has no attribute {name!r}")
        try:
            return import_module(f"altmin.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"altmin.{name}":  # an AttributeError, so that `help(altmin)` passes it over
                raise AttributeError(str(error)) from error
        public = import_module("altmin.public")
        if not hasattr(public, name):
            raise AttributeError(f"module 'altmin' has no attribute {name!r}")
        globals()[name] = getattr(public, name)
        return globals()[name]

    def __dir__():
        return sorted([*import_module("altmin.public").__all__, *_ON_FIRST_USE])
