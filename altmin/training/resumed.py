"""The state of a run, which a checkpoint holds, and what distinguishes runs, since a run resumes only from its own
checkpoint."""

import copy
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from altmin.common import precision
from altmin.common.describe import describe, kind
from altmin.common.state import load_parts
from altmin.methods.alternating import Offline
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.recorded import Recorded
from altmin.training import callbacks, checkpoint


def state_of(loop: Any) -> dict[str, Any]:
    """Return the state that the run of a `Loop` needs to resume."""
    random = {"cpu": torch.get_rng_state()}
    if loop.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(loop.device)
    parts = {name: part.state_dict() for name, part in _parts(loop).items()}
    rows = {"at": asdict(loop.at), "watch": asdict(loop.watches[0]), "history": asdict(loop.histories[0])}
    return {"settings": loop.settings, "random": random, "parts": parts, **rows}


def _parts(loop: Any) -> dict[str, Any]:
    parts = {"model": loop.method.model, "method": loop.method, "schedule": loop.schedule}
    return parts | {f"callback {i}": callback for i, callback in enumerate(loop.callbacks.with_state)}


def restore(loop: Any, path: Any) -> None:
    """Restore the position of the checkpoint; ValueError, and no change, if it does not fit."""
    state, here = checkpoint.load(path, loop.device), loop.settings
    if not isinstance(state, dict) or "settings" not in state:
        raise ValueError(f"{path} is not the checkpoint of a run")
    for name in {**here, **state["settings"]}:
        there, now = state["settings"].get(name, "none"), here.get(name, "none")
        if there != now:
            raise ValueError(f"{path} belongs to another run: its {name} is {there}; here it is {now}")
    if state["at"]["epoch"] > loop.run.epochs:
        raise ValueError(f"{path} holds {state['at']['epoch']} epochs, more than {loop.run.epochs}")
    load_parts(_parts(loop), copy.deepcopy(state["parts"]), f"the run of {path}")
    for part, name in ((loop.at, "at"), (loop.watches[0], "watch"), (loop.histories[0], "history")):
        vars(part).update(state[name])
    torch.set_rng_state(state["random"]["cpu"])
    if loop.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), loop.device)


def settings_of(loop: Any) -> dict[str, str]:
    """Return the settings that distinguish the run of a `Loop` from others, by their names."""
    run, data = loop.run, loop.data
    return {
        "seed": str(loop.seeds[0]),
        "batch_size": str(run.batch_size),
        "training data": data.source.describe(),
        "test data": "; ".join(f"{name}: {part.describe()}" for name, part in loop.tests.items()),
        "schedule": loop.schedule.description,
        "eval_batches": str(loop.eval_batches),
        "metrics": " and ".join(loop.columns),
        "augmentation": describe(run.augment),
        "callbacks": callbacks.settings_of(loop.callbacks),
        **method_settings(loop.method, run.precision),
    }


def method_settings(method: Any, rounding: str | None = None) -> dict[str, str]:
    """Return a method's kind, parts and options, its model, and the precision of products as it is set for a GPU, since
    a run may go on with one or without. A recorded step counts as its method's, and so does a step whose samples or
    blocks are spread over ranks, except for the number of parts of a mini-batch."""
    inner = method.method if isinstance(method, Recorded | Distributed) else method
    settings = {"micro_batches": str(inner.micro_batches)} if isinstance(inner, LayerParallel) else {}
    inner = inner.method if isinstance(inner, LayerParallel) else inner
    settings |= {"method": type(inner).__name__, "optimizer": _rates(inner.optimizer)}
    settings |= {name: describe(value) for name, value in getattr(inner, "options", {}).items()}
    inner = inner.method if isinstance(inner, Offline) else inner
    parts = ("codes", "weights", "penalty", "loss", "at")
    settings |= {name: describe(getattr(inner, name)) for name in parts if hasattr(inner, name)}
    settings |= {"layers": " ".join(repr(inner.model).split()), "model": _parameters(inner.model)}
    return settings | {"precision of products": precision.current(torch.device("cuda"), rounding)}


def _rates(optimizer: Any) -> str:
    """Return an optimizer's kind and numbers, e.g. "Adam [{'lr': 0.001, 'eps': 1e-08}]"; some count steps there."""
    groups = [] if optimizer is None else optimizer.param_groups
    counts = ("step", "updates")
    numbers = [{k: v for k, v in g.items() if type(v) in (int, float, tuple) and k not in counts} for g in groups]
    return f"{type(optimizer).__name__} {numbers}"


def _parameters(model: nn.Module) -> str:
    """Return names, shapes and types of a model's parameters and buffers, and which are frozen."""
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return ", ".join(f"{name} {kind(x)}{' frozen' * (name in frozen)}" for name, x in named)
