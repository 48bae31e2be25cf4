"""Packages of others as they are, imported without those of their own imports that a trial does not use."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from altmin.common.optional import need

UNUSED = (
    *("GPUtil", "gdown", "heavyball.helpers", "pytorchcv", "qpsolvers", "torch.utils.tensorboard"),
    *("torchvision", "wandb"),
)
"""Modules that harnesses import and no trial uses: searches, loggers, downloads, pictures, pretrained nets."""


class Unused(ModuleType):
    """A module with a class by any name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), dict.fromkeys(("__init__", "__call__"), lambda self, *args, **options: None))


class Finder(MetaPathFinder, Loader):
    """Finds an `Unused` module in place of those by the names of `UNUSED`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        unused = any(f"{name}.".startswith(f"{other}.") for other in UNUSED)
        return ModuleSpec(name, self, is_package=True) if unused else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Unused(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def without_unused() -> Iterator[None]:
    """Import `UNUSED` as empty modules meanwhile, which no later import meets."""
    sys.meta_path.insert(0, finder := Finder())
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, Unused)]:
            del sys.modules[name]


def harness(module: str) -> Any:
    """Return a module of a harness. ModuleNotFoundError in a sentence if it is not installed."""
    library, extra = module.partition(".")[0], "harnesses"
    if library == "deep_river":  # 0.3.4 was written for river 0.25, which had this module, and for an older torch
        extra = ""
        base, anomaly = need("river.base", "stream"), need("river.anomaly", "stream")
        sys.modules["river.anomaly.base"] = vars(anomaly)["base"] = base
    with without_unused():
        return need(module, extra, f"a trial in {library}")
