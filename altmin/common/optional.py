"""Libraries that only some parts of the package need."""

import importlib
from types import ModuleType

PACKAGES = {"sklearn": "scikit-learn", "pytorch_optimizer": "pytorch-optimizer"}
"""Name of a library where it is installed, if not as it is imported."""


def need(module: str, extra: str = "", what: str = "this") -> ModuleType:
    """The module. ModuleNotFoundError in one sentence if its library is not installed: what needs it, and the extra of
    altmin that brings it, for the folder of altmin's copy; without an extra the library itself is to be installed.

    >>> need("no_such_library", "plot", "a picture")
    Traceback (most recent call last):
    ModuleNotFoundError: a picture needs no_such_library, which is not installed: pip install ".[plot]"
    """
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        name = PACKAGES.get(library, library)
        install = f'".[{extra}]"' if extra else name
        sentence = f"{what} needs {name}, which is not installed: pip install {install}"
    raise ModuleNotFoundError(sentence, name=library)
