"""What a saved state must be before any of it is written: a tree like that of the object which it is for.

torch's fused kernels go through memory as it lies and check nothing: a moment of another shape is written past its end.
So every tensor is checked first, all of a state before the first write, and one that does not fit is a `ValueError`.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from altmin.common.errors import check_number

ALREADY_HERE = ("foreach", "capturable", "differentiable")
"""Options of how an optimizer is executed, which a loaded state leaves as they are."""


def check_like(new: Any, reference: Any, what: str) -> None:
    """ValueError, which names the entry, unless a state fits in the place of `reference`, such as that of a new object.

    Dicts have the same keys and sequences the same length. Tensors have the same type and shape, are on the same kind
    of device or on the CPU, and are finite if those of the reference are; a sparse one has sparse rows, and may be
    dense. Numbers are finite where the reference is, where it has an integer whole and not negative; all else is of the
    same type. what: the name of the state in a message.

    >>> check_like({"mu": 1.0, "steps": [3]}, {"mu": 0.5, "steps": [0]}, "a Penalty")
    >>> check_like({"mu": math.nan, "steps": [3]}, {"mu": 0.5, "steps": [0]}, "a Penalty")
    Traceback (most recent call last):
    ValueError: mu of a Penalty must be a finite number, given nan
    """
    if isinstance(reference, Mapping):
        demand_entries(new, reference, what)
        for name, value in reference.items():
            check_like(new[name], value, f"{name} of {what}")
    elif isinstance(reference, list | tuple):
        if not isinstance(new, list | tuple) or len(new) != len(reference):
            raise ValueError(f"{what} must be {len(reference)} entries, given {_shown(new)}")
        for i, (one, value) in enumerate(zip(new, reference, strict=True)):
            check_like(one, value, f"entry {i} of {what}")
    elif isinstance(reference, Tensor):
        demand_tensor(new, reference, what, sparse=reference.is_sparse)
    else:
        _check_leaf(new, reference, what)


def _check_leaf(new: Any, reference: Any, what: str) -> None:
    number = isinstance(reference, int | float) and not isinstance(reference, bool)
    if not number and type(new) is not type(reference):
        raise ValueError(f"{what} must be like {reference!r}, given {_shown(new)}")
    if isinstance(reference, int) and number:
        demand_count(new, what)
    elif number and (math.isfinite(reference) or isinstance(new, bool) or not isinstance(new, int | float)):
        demand_number(new, what)


def demand_entries(state: Any, names: Iterable[Any], of: str) -> None:
    """ValueError unless the state is a dict with these entries and no others."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state of {of} is a dict, given {type(state).__name__}")
    if missing := set(names) - set(state):
        raise ValueError(f"this is not the state of {of}: it lacks {', '.join(sorted(map(str, missing)))}")
    if extra := set(state) - set(names):
        raise ValueError(f"this is not the state of {of}: it has {', '.join(sorted(map(str, extra)))} besides")


def demand_number(value: Any, what: str, low: float = -math.inf, whole: bool = False) -> float:
    """The number, also one in a tensor; ValueError unless it is finite, at least `low` and, if so wanted, whole."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "meta":
        value = value.item()
    try:
        check_number(what, value, low, whole=whole)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return float(value)


def demand_count(value: Any, what: str) -> int:
    """As `demand_number`, of whole numbers that are not negative."""
    return int(demand_number(value, what, 0, whole=True))


def demand_tensor(
    value: Any, like: Tensor, what: str, shape: Sequence[int] | None = None, sparse: bool = False
) -> None:
    """ValueError unless the value is a tensor with the type of `like`, with its shape unless another is given, on its
    kind of device or on the CPU, and finite if `like` is. sparse: whether it may be a sparse one of rows, too."""
    shape = tuple(like.shape if shape is None else shape)
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} must be a tensor, given {_shown(value)}")
    if (tuple(value.shape), value.dtype) != (shape, like.dtype) or not (
        value.layout == torch.strided or (sparse and value.is_sparse and value.sparse_dim() == 1)
    ):
        raise ValueError(f"{what} must be {like.dtype} of shape {shape}, given {_shown(value)}")
    anywhere = value.ndim == 0 and value.device.type != "meta"  # a count of steps is where the steps are taken
    if value.device.type not in (like.device.type, "cpu") and not anywhere:
        raise ValueError(f"{what} belongs on {like.device.type}, given one on {value.device.type}; move it with .to")
    if _finite(like) and not _finite(value):
        raise ValueError(f"{what} holds numbers that are not finite")


def _finite(x: Tensor) -> bool:
    return bool((x._values() if x.is_sparse else x).isfinite().all())


def check_optimizer(optimizer: Optimizer, state: Any, complete: bool = False, tables: Collection[int] = ()) -> None:
    """ValueError unless the optimizer can go on from the state. complete: whether every parameter that requires a
    gradient has taken part in every step. tables: the ids of parameters with sparse gradients."""
    demand_entries(state, ("state", "param_groups"), "an optimizer")
    groups, given = optimizer.state_dict()["param_groups"], state["param_groups"]
    if not isinstance(given, Sequence) or len(given) != len(groups):
        count = len(given) if isinstance(given, Sequence) else "no list of"
        raise ValueError(f"the state is of {count} groups of parameters, this optimizer has {len(groups)}")
    for n, (own, group) in enumerate(zip(groups, given, strict=True)):
        _check_group(own, group, optimizer.defaults, f"group {n} of the optimizer")
    params, entries = [p for group in optimizer.param_groups for p in group["params"]], state["state"]
    if not isinstance(entries, Mapping):
        raise ValueError(f"the state of an optimizer's parameters is a dict, given {_shown(entries)}")
    reference = _stepped(optimizer, tables) if entries else {}
    for i, entry in entries.items():
        if type(i) is not int or not 0 <= i < len(params):
            raise ValueError(f"the state is of a parameter {i!r}, this optimizer has those from 0 to {len(params) - 1}")
        if entry or not complete:
            check_like(entry, reference.get(i, {}), f"parameter {i}")
        if "step" in entry:
            demand_count(entry["step"], f"step of parameter {i}")
    lacking = [i for i, p in enumerate(params) if p.requires_grad and p.numel() and not entries.get(i)]
    if complete and lacking and any(entries.values()):
        raise ValueError(f"the state lacks parameter {lacking[0]}, and has others")


def _check_group(own: Mapping[str, Any], group: Any, defaults: Mapping[str, Any], of: str) -> None:
    """own: the optimizer's group; the other one is the state's, which may have more options, as a scheduler adds."""
    if not isinstance(group, Mapping):
        raise ValueError(f"{of} must be a dict, given {_shown(group)}")
    if missing := {"params", *defaults} - set(group):
        raise ValueError(f"{of} lacks {', '.join(sorted(missing))}")
    if group["params"] != own["params"]:
        count = len(group["params"]) if isinstance(group["params"], Sequence) else 0
        raise ValueError(f"{of} is of {count} parameters in the state, here of {len(own['params'])}")
    for name, value in group.items():
        here, what = own.get(name, 0.0), f"{name} of {of}"
        if name in ("params", "param_names", *ALREADY_HERE):
            continue
        if here is None or isinstance(here, bool | str):
            if type(value) is not type(here) or value != here:
                raise ValueError(f"{what} is {_shown(value)} in the state, here it is {here!r}")
        elif isinstance(here, tuple | list):
            check_like(value, here, what)
        else:
            demand_number(value, what, 0.0 if here >= 0 else -math.inf)


def _stepped(optimizer: Optimizer, tables: Collection[int]) -> dict[int, Any]:
    """What such an optimizer keeps of each parameter once it has taken a step, by number: that of a twin whose
    parameters and gradients are zero. tables: as in `check_optimizer`."""
    twin = object.__new__(type(optimizer))
    vars(twin).update({name: {} if name.endswith("_hooks") else value for name, value in vars(optimizer).items()})
    vars(twin).update(state=defaultdict(dict), param_groups=[])
    vars(twin).pop("step", None)  # a scheduler's wrapper around the optimizer's own
    for group in optimizer.param_groups:
        params = [torch.zeros_like(p.detach()) for p in group["params"]]
        for p, like in zip(params, group["params"], strict=True):
            p.grad = torch.zeros_like(p).to_sparse(1) if id(like) in tables else torch.zeros_like(p)
        twin.param_groups.append({**group, "params": params})
    twin.step()
    return twin.state_dict()["state"]


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
