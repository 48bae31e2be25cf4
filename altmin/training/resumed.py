"""The state of a run, which a checkpoint holds, and what distinguishes runs, since a run resumes only from its own
checkpoint."""

import copy
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.describe import describe, kind
from altmin.common.state import matched
from altmin.methods.offline import Offline
from altmin.runners import precision
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.recorded import Recorded


def state_of(loop: Any) -> dict[str, Any]:
    """The state that the run of a `Loop` needs to resume."""
    random = {"cpu": torch.get_rng_state()}
    if loop.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(loop.device)
    return {
        "at": asdict(loop.at),
        "watch": asdict(loop.watches[0]),
        "history": asdict(loop.histories[0]),
        "model": loop.method.model.state_dict(),
        "method": loop.method.state_dict(),
        "schedule": loop.schedule.state_dict(),
        "callbacks": loop.callbacks.state(),
        "random": random,
        "data": loop.data.state(),
    }


def restore(loop: Any) -> None:
    """Restore the position of the checkpoint; a `ValueError`, and no change, if it does not fit."""
    state, before = loop.file.load(loop.device), copy.deepcopy(state_of(loop))
    try:
        state["model"] = matched(state["model"], loop.method.model.state_dict(), "the model")
        if state["at"]["epoch"] > loop.epochs:
            raise ValueError(f"it holds {state['at']['epoch']} epochs, more than {loop.epochs}")
        _load(state, loop)
    except Exception as error:
        _load(before, loop)  # a part may fail as it loads
        raise ValueError(f"{loop.file.path} does not fit this run: {' '.join(str(error).split())}") from error
    loop.file.written = True


def _load(state: dict[str, Any], loop: Any) -> None:
    loop.method.load_state_dict(state["method"])
    loop.callbacks.load(state["callbacks"])
    loop.method.model.load_state_dict(state["model"])
    loop.schedule.load_state_dict(state["schedule"])
    loop.data.load(state["data"])
    vars(loop.at).update(state["at"])
    vars(loop.watches[0]).update(state["watch"])
    vars(loop.histories[0]).update(state["history"])
    torch.set_rng_state(state["random"]["cpu"])
    if loop.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), loop.device)


def settings_of(loop: Any) -> dict[str, Any]:
    """The settings that distinguish the run of a `Loop` from others."""
    tests = {name: part.describe() for name, part in loop.tests.items()}
    single = tests["test"] if list(tests) == ["test"] else "; ".join(f"{k}: {v}" for k, v in tests.items())
    augment = loop.plan.run.augment
    return {
        "seed": loop.seeds[0],
        **loop.data.settings(),
        "schedule": loop.schedule.description,
        "eval_batches": loop.eval_batches,
        "metrics": " and ".join(loop.columns),
        **method_settings(loop.method, loop.context),
        "test data": single or "none",
        **({} if augment is None else {"augmentation": describe(augment)}),
        **loop.callbacks.settings(),
    }


def method_settings(method: Any, context: Context = LOCAL) -> dict[str, str]:
    """A method's kind, parts and options, its model, and the precision of products as it is set for a GPU, since a run
    may go on with one or without. A recorded step counts as its method's, and so does a step whose samples or blocks
    are spread over ranks, except for the number of parts of a mini-batch."""
    inner = method.method if isinstance(method, Recorded | Distributed) else method
    in_parts = {"micro_batches": str(inner.micro_batches)} if isinstance(inner, LayerParallel) else {}
    inner = inner.method if isinstance(inner, LayerParallel) else inner
    found = in_parts | {"method": type(inner).__name__, "optimizer": optimizer_settings(inner.optimizer)}
    found |= {name: describe(value) for name, value in getattr(inner, "options", {}).items()}
    parts = inner.method if isinstance(inner, Offline) else inner
    found |= {
        name: describe(getattr(parts, name)) for name in ("codes", "weights", "penalty", "loss") if hasattr(parts, name)
    }
    found["model"] = parameters(inner.model)
    found["layers"] = " ".join(repr(inner.model).split())
    at: Any = getattr(parts, "at", None)
    if at is not None:
        found["cut after"] = ", ".join(sorted(at)) or "nothing"
    found["precision of products"] = precision.current(torch.device("cuda"), context)
    return found


def optimizer_settings(optimizer: Any) -> str:
    """An optimizer's kind and numbers, e.g. "Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08)"; some count steps there."""
    if optimizer is None:
        return "none"
    numbers = [
        ", ".join(f"{k}={v}" for k, v in group.items() if type(v) in (int, float, tuple) and k != "step")
        for group in optimizer.param_groups
    ]
    return f"{type(optimizer).__name__}({'; '.join(numbers)})"


def parameters(model: nn.Module) -> str:
    """Names, shapes and types of a model's parameters and buffers, and which are frozen."""
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return ", ".join(
        f"{name} {'x'.join(map(str, x.shape))} {kind(x).partition(' ')[0]}{' frozen' * (name in frozen)}"
        for name, x in named
    )
