"""The `altmin` command under torchrun: how many processes run it, which of them speaks, and how they train together."""

import os
from contextlib import suppress
from datetime import timedelta
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from altmin import methods
from altmin.cli.torchrun import count, first, started
from altmin.common.describe import digest
from altmin.core.trainer import AltMin
from altmin.runners import ranks
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.training.together import Together

OTHERS = timedelta(seconds=2)
"""How long a rank that has stopped because of another waits for that one to say why."""


PARTS = 4
"""Those of a mini-batch that pass through the layers, if it is not said."""
REACHED = timedelta(seconds=30)
"""How long a process tries to reach torchrun's store."""


def device(given: str) -> str:
    """Each process of a machine has a GPU of its own: the one of its number there. ValueError if one was named."""
    if count() == 1 or not given.startswith("cuda"):
        return given
    if given != "cuda":
        raise ValueError(f"under torchrun each process has a GPU of its own; give --device cuda, not {given}")
    return f"cuda:{os.environ['LOCAL_RANK']}"


def check_gpus(given: str) -> None:
    """ValueError, the same in all processes of a machine, if there are more of them than GPUs there."""
    own, found = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if count() > 1 and given == "cuda" and own > found:
        raise ValueError(
            f"--device cuda gives each process a GPU of its own, torchrun has started {own} on this machine, and torch "
            f"{torch.__version__} finds {found} there; "
            + (f"start it with --nproc-per-node {found}, or use --device cpu" if found else "use --device cpu")
        )


def join(place: torch.device) -> None:
    """Joins the other processes, if there are others."""
    if started():
        ranks.start(place)


def layered() -> list[str]:
    """The methods whose layers can be spread over processes: those that make an `AltMin`."""
    return [name for name in methods.names() if signature(methods.factory(name)).return_annotation is AltMin]


def check_layers(layers: int, parts: int | None, method: str, record: bool) -> None:
    """ValueError unless the layers of a method can be spread over that many processes, or mini-batches pass in
    parts."""
    if layers == 1 and parts is None:
        return
    given = f"--micro-batches {parts}" if layers == 1 else f"--layer-ranks {layers}"
    if method in methods.names() and method not in layered():
        raise ValueError(
            f"{given} is for the methods {', '.join(layered())}, given --method {method}; without --layer-ranks and "
            "--micro-batches processes share the rows of every mini-batch, with any method"
        )
    if record:
        raise ValueError(f"{given} and --record, which records whole steps, exclude each other; leave one of them out")
    if count() % layers:
        here = f"torchrun has started {count()}" if started() else "there is one"
        raise ValueError(
            f"{given} needs {layers} processes or a multiple of that, and {here}; start them with torchrun "
            f"--standalone --nproc-per-node {layers} -m altmin train ..."
        )


def wrapped(method: Any, layers: int = 1, parts: int | None = None) -> Any:
    """How `train` spreads a method over the processes that torchrun has started: its layers over `layers` of them,
    the samples over the rest. parts: those in which a mini-batch passes through the layers; None if they are not
    spread. Without torchrun, and without parts, the method itself."""
    if parts is not None:
        return LayerParallel(method, parts, count() // layers)
    return Distributed(method) if started() else method


def goes_on(checkpoint: Path | None, resume: bool) -> bool:
    """Whether a run goes on from its checkpoint: as told, or when torchrun has started its processes again. It has kept
    then in its store, which outlives them, that the run began with no such file."""
    if checkpoint is None or resume or not started():
        return resume
    together, store, key = Together(SimpleNamespace(ranks=ranks.Ranks())), _store(), f"began {checkpoint.resolve()}"
    begun = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0" if store is None else store.check([key])
    begins, seen = together.total(begun and first(), checkpoint.exists())
    if not begins and not seen and first() and store is not None:
        store.set(key, "")
    return bool(begins and seen)


def _store() -> Any:
    """What torchrun keeps for its processes; None if it keeps nothing, or has ended."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    with suppress(RuntimeError):
        return dist.PrefixStore("altmin command", next(dist.rendezvous("env://", timeout=REACHED))[0])
    return None


def speaks(text: str, because: BaseException | None = None) -> bool:
    """Whether this process is the one to print an error: each text is printed by one of them, and once though torchrun
    starts them again. A process that has stopped because of another leaves it to that one, unless it is silent."""
    if count() == 1:
        return True
    store = _store()
    if store is None:
        return first()
    said = f"said {os.environ['TORCHELASTIC_RESTART_COUNT']}"
    if isinstance(because, ranks.RankFailed):
        with suppress(RuntimeError):  # it has not
            store.wait([said], OTHERS)
            return False
    bare = text.partition(f" of {count()}: ")[2] if text.startswith("rank ") else text
    store.set(said, "")
    return bool(store.add(f"text {digest(bare)}", 1) == 1)
