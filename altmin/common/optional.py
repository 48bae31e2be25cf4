"""Libraries that only some parts of the package need."""

import importlib
from types import ModuleType

PACKAGES = {"sklearn": "scikit-learn", "pytorch_optimizer": "pytorch-optimizer"}
"""Name of a library where it is installed, if not as it is imported."""


def need(module: str, extra: str = "", what: str = "this") -> ModuleType:
    """Import a module. ModuleNotFoundError, if its library is not installed, names what needs it and the command that
    installs it: the extra of altmin, in the folder of altmin's copy, or without an extra the library itself.

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
