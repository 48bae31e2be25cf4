"""What a saved state must have before any of it is written: the names, shapes, types and ranges of what it is for.

torch's fused kernels go through memory as it lies and ask nothing: a moment of another shape is written past its end.
So every tensor is checked first, all of a state before the first write, and one that does not fit is a `ValueError`.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

ALREADY_HERE = ("foreach", "capturable", "differentiable")
"""Options of how an optimizer is executed, which a loaded state leaves as they are."""
AT_LEAST_ZERO = ("lr", "eps", "weight_decay", "momentum")
SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "sum")


def demand_entries(state: Any, names: Iterable[str], of: str) -> None:
    """ValueError unless the state is a dict with these entries and no others."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state of {of} is a dict, given {type(state).__name__}")
    if missing := set(names) - set(state):
        raise ValueError(f"this is not the state of {of}: it lacks {', '.join(sorted(missing))}")
    if extra := set(state) - set(names):
        raise ValueError(f"this is not the state of {of}: it has {', '.join(sorted(map(str, extra)))} besides")


def demand_number(value: Any, what: str, low: float = -math.inf, below: float = math.inf) -> float:
    """The number, also one in a tensor; ValueError unless it is finite, at least `low` and below `below`."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "meta":
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, given {_shown(value)}")
    if not low <= value < below:
        limit = f"at least {low:g}" if value < low else f"below {below:g}"
        raise ValueError(f"{what} must be {limit}, given {value!r}")
    return float(value)


def demand_count(value: Any, what: str, low: int = 0, below: float = math.inf) -> int:
    """As `demand_number`, of whole numbers."""
    number = demand_number(value, what, low, below)
    if number != int(number):
        raise ValueError(f"{what} must be a whole number, given {number!r}")
    return int(number)


def demand_tensor(
    value: Any, like: Tensor, what: str, shape: Sequence[int] | None = None, sparse: bool = False
) -> None:
    """ValueError unless the value is a finite tensor with the type of `like`, with its shape unless another is given,
    on its kind of device or on the CPU. sparse: whether it may be a sparse one of rows, too."""
    shape = tuple(like.shape if shape is None else shape)
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} must be a tensor, given {_shown(value)}")
    if (tuple(value.shape), value.dtype) != (shape, like.dtype) or not (
        value.layout == torch.strided or (sparse and value.is_sparse and value.sparse_dim() == 1)
    ):
        raise ValueError(f"{what} must be {like.dtype} of shape {shape}, given {_shown(value)}")
    if value.device.type not in (like.device.type, "cpu"):
        raise ValueError(f"{what} belongs on {like.device.type}, given one on {value.device.type}; move it with .to")
    if not bool((value._values() if value.is_sparse else value).isfinite().all()):
        raise ValueError(f"{what} holds numbers that are not finite")


def demand_blocks(state: Any, blocks: Iterable[int], what: str) -> dict[int, Any]:
    """What a state has for each of some blocks, by number; ValueError for others than these."""
    if not isinstance(state, Mapping):
        raise ValueError(f"{what} must be a dict by blocks, given {_shown(state)}")
    known = {str(l): l for l in blocks}
    for l in state:
        if str(l) not in known:
            raise ValueError(f"the state has {what} of block {l}, here the blocks are {list(known.values())}")
    return {known[str(l)]: value for l, value in state.items()}


def demand_separate(named: Iterable[tuple[str, Tensor]]) -> None:
    """ValueError for a trained parameter that does not fill a piece of memory of its own, as fused kernels take it to.

    An expanded one has less memory than entries, a slice of columns has gaps, and two may lie over each other.
    """
    spans = []
    for name, p in named:
        if p.requires_grad and not _dense(p):
            raise _not_separate(f"{name}, of shape {tuple(p.shape)} and strides {p.stride()}, is expanded or has gaps")
        if p.numel() and p.device.type != "meta":
            length = 1 + sum((size - 1) * stride for size, stride in zip(p.shape, p.stride(), strict=True))
            spans.append((str(p.device), p.data_ptr(), p.data_ptr() + length * p.element_size(), name, p.requires_grad))
    reached: dict[tuple[str, bool], tuple[int, str]] = {}
    """Of every device, for all parameters and for trained ones: how far those before this one go."""
    for device, start, end, name, trained in sorted(spans):
        limit, other = reached.get((device, trained), (0, ""))
        if start < limit:
            raise _not_separate(f"{name} shares memory with {other}")
        for any_other in (True, False) if trained else (True,):
            reached[device, any_other] = max(reached.get((device, any_other), (0, "")), (end, name))


def check_optimizer(optimizer: Optimizer, state: Any, complete: bool = False, tables: Collection[int] = ()) -> None:
    """ValueError unless the optimizer can go on from the state. complete: whether every parameter that requires a
    gradient has taken part in every step. tables: the ids of parameters with sparse gradients."""
    demand_entries(state, ("state", "param_groups"), "an optimizer")
    groups, given = optimizer.state_dict()["param_groups"], state["param_groups"]
    if not isinstance(given, Sequence) or len(given) != len(groups):
        count = len(given) if isinstance(given, Sequence) else "no list of"
        raise ValueError(f"the state is of {count} groups of parameters, this optimizer has {len(groups)}")
    for n, (own, group) in enumerate(zip(groups, given, strict=True)):
        _check_group(own, group, optimizer.defaults, n)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    entries = state["state"]
    if not isinstance(entries, Mapping):
        raise ValueError(f"the state of an optimizer's parameters is a dict, given {_shown(entries)}")
    for i, entry in entries.items():
        if type(i) is not int or not 0 <= i < len(params):
            raise ValueError(f"the state is of a parameter {i!r}, this optimizer has those from 0 to {len(params) - 1}")
        if entry and optimizer.state.get(params[i]) and isinstance(entry, Mapping):
            demand_entries(entry, optimizer.state[params[i]], f"parameter {i}")
        group = next(group for group in given if i in group["params"])
        _check_entry(optimizer, entry, params[i], group, f"parameter {i}", id(params[i]) in tables)
    lacking = [i for i, p in enumerate(params) if p.requires_grad and p.numel() and not entries.get(i)]
    if complete and lacking and any(entries.values()):
        raise ValueError(f"the state lacks parameter {lacking[0]}, and has others")


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any], shared_steps: bool = False) -> None:
    """Loads a state that `check_optimizer` has passed. Nothing of it is shared with the optimizer afterwards, and
    moments lie in memory as their parameters do. shared_steps: whether parameters that share a count of steps go on to.
    """
    params = [p for group in optimizer.param_groups for p in group["params"]]
    steps: dict[int, Tensor] = {}

    def owned(name: str, value: Any, p: Tensor) -> Any:
        if not isinstance(value, Tensor):
            return value
        if name == "step":
            own = steps.get(id(value)) if shared_steps else None
            steps[id(value)] = value.detach().clone() if own is None else own
            return steps[id(value)]
        alike = value.shape == p.shape and not value.is_sparse
        return torch.empty_like(p).copy_(value.detach()) if alike else value.detach().clone()

    with torch.no_grad():
        entries = {i: {k: owned(k, v, params[i]) for k, v in entry.items()} for i, entry in state["state"].items()}
    groups = [
        {**group, **{name: own[name] for name in ALREADY_HERE if name in own}}
        for own, group in zip(optimizer.param_groups, state["param_groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": entries, "param_groups": groups})


def check_module(model: nn.Module, state: Any) -> None:
    """ValueError unless `model.load_state_dict(state)` gives each of its tensors one of the same shape and type, finite
    if it is a parameter, and a buffer without NaN unless it has one now."""
    own, trained = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
    demand_entries(state, own, "this model")
    for name, here in own.items():
        value = state[name]
        if not isinstance(here, Tensor):
            continue
        if not isinstance(value, Tensor) or (value.shape, value.dtype) != (here.shape, here.dtype):
            raise ValueError(
                f"{name} of the model must be {here.dtype} of shape {tuple(here.shape)}, given {_shown(value)}"
            )
        if name in trained:
            demand_tensor(value, here, f"{name} of the model")
        elif bool(value.isnan().any()) and not bool(here.isnan().any()):
            raise ValueError(f"{name} of the model holds numbers that are not finite")
        if name.rpartition(".")[2] == "num_batches_tracked":
            demand_count(value, f"{name} of the model")


def _check_group(own: Mapping[str, Any], group: Any, defaults: Mapping[str, Any], n: int) -> None:
    """own: the optimizer's group number n; the other one is the state's."""
    of = f"group {n} of the optimizer"
    if not isinstance(group, Mapping):
        raise ValueError(f"{of} must be a dict, given {_shown(group)}")
    if missing := {"params", *defaults} - set(group):
        raise ValueError(f"{of} lacks {', '.join(sorted(missing))}")
    if group["params"] != own["params"]:
        count = len(group["params"]) if isinstance(group["params"], Sequence) else 0
        raise ValueError(f"{of} is of {count} parameters in the state, here of {len(own['params'])}")
    for name, value in group.items():
        if name not in ("params", "param_names", *ALREADY_HERE):
            _check_option(name, value, own.get(name, 0.0), f"{name} of {of}")


def _check_option(name: str, value: Any, own: Any, what: str) -> None:
    if isinstance(own, tuple | list):
        if not isinstance(value, tuple | list) or len(value) != len(own):
            raise ValueError(f"{what} must be {len(own)} numbers, given {_shown(value)}")
        for each, here in zip(value, own, strict=True):
            _check_option("beta" if name == "betas" else name, each, here, what)
    elif own is None or isinstance(own, bool | str):
        if type(value) is not type(own) or value != own:
            raise ValueError(f"{what} is {_shown(value)} in the state, here it is {own!r}")
    else:
        low = 0.0 if name in (*AT_LEAST_ZERO, "beta") else -math.inf
        demand_number(value, what, low, 1.0 if name == "beta" else math.inf)


def _check_entry(optimizer: Optimizer, entry: Any, p: Tensor, group: Mapping[str, Any], of: str, table: bool) -> None:
    """The state of one parameter; empty before its first step. table: its gradients are sparse, and so may SGD's
    momentum be."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"the state of {of} must be a dict, given {_shown(entry)}")
    names = _names(optimizer, group)
    if (entry and names) or isinstance(optimizer, SGD):
        demand_entries(entry, names, of)
    for name, value in entry.items():
        what = f"{name} of {of}"
        if name == "step":
            if names and not (isinstance(value, Tensor) and value.ndim == 0 and value.is_floating_point()):
                raise ValueError(f"{what} must be a floating-point tensor without dimensions, given {_shown(value)}")
            demand_count(value, what)
        elif names:
            demand_tensor(value, p, what, sparse=table and name == "momentum_buffer")
            if name in SQUARES and bool((value < 0).any()):
                raise ValueError(f"{what} holds numbers below 0")
        elif not isinstance(value, Tensor | int | float | str | None):
            raise ValueError(f"{what} must be a tensor or a number, given {_shown(value)}")
        elif isinstance(value, Tensor) and not _spreads(value, p):
            raise ValueError(f"{what} must fit shape {tuple(p.shape)}, given {_shown(value)}")
        elif isinstance(value, Tensor) and not bool(value.isfinite().all()):
            raise ValueError(f"{what} holds numbers that are not finite")


def _names(optimizer: Optimizer, group: Mapping[str, Any]) -> tuple[str, ...]:
    """What the state of a parameter consists of; empty where torch has no fused kernel."""
    if isinstance(optimizer, Adam):
        return ("step", "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
    if isinstance(optimizer, SGD):
        return ("momentum_buffer",) if group["momentum"] else ()
    return ("step", "sum") if isinstance(optimizer, Adagrad) else ()


def _spreads(value: Tensor, p: Tensor) -> bool:
    """Whether a tensor, such as a factor for every row, can be spread over a parameter."""
    sizes = zip(reversed(value.shape), reversed(p.shape), strict=False)
    return value.device.type != "meta" and value.ndim <= p.ndim and all(a in (1, b) for a, b in sizes)


def _dense(p: Tensor) -> bool:
    """Whether the entries of a tensor fill a piece of memory, each once."""
    expected = 1
    for stride, size in sorted((t, s) for t, s in zip(p.stride(), p.shape, strict=True) if s != 1):
        if stride != expected:
            return p.numel() == 0
        expected *= size
    return p.layout == torch.strided


def _not_separate(what: str) -> ValueError:
    return ValueError(f"parameter {what}; give it memory of its own before training: p.data = p.data.clone()")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{type(value).__name__} {text[:37]}..."
