"""Loading a saved state into an object: compared with the object's present state first, so that it fits or changes
nothing."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

EXECUTION = ("foreach", "capturable", "differentiable", "fused")
"""Options of how an optimizer is executed, which a loaded state leaves as they are."""
MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "sum")
"""Entries of an optimizer's state that torch's fused kernels go through beside the parameter, without a check."""


def matched(new: Any, old: Any, what: str) -> Any:
    """Return a copy of a state; ValueError, which names the entry, unless it has the structure of `old`: dicts the same
    keys, sequences the same length, tensors the same shape and type, and all else the same kind of value.

    >>> matched({"mu": 1.0, "steps": [3]}, {"mu": 0.5, "steps": [0]}, "Penalty")
    {'mu': 1.0, 'steps': [3]}
    >>> matched({"mu": 1.0}, {"mu": 0.5, "steps": [0]}, "Penalty")
    Traceback (most recent call last):
    ValueError: this is no state of Penalty: it has ['mu'], not ['mu', 'steps']
    """
    if isinstance(old, Mapping):
        if not isinstance(new, Mapping) or set(new) != set(old):
            has = sorted(map(str, new)) if isinstance(new, Mapping) else type(new).__name__
            raise ValueError(f"this is no state of {what}: it has {has}, not {sorted(map(str, old))}")
        return {key: matched(new[key], value, f"{key} of {what}") for key, value in old.items()}
    if isinstance(old, list | tuple):
        if not isinstance(new, list | tuple) or len(new) != len(old):
            raise ValueError(f"{what} must have {len(old)} entries, given {new!r:.60}")
        return type(old)([matched(a, b, f"entry {i} of {what}") for i, (a, b) in enumerate(zip(new, old, strict=True))])
    if isinstance(old, Tensor):
        if not isinstance(new, Tensor) or (new.shape, new.dtype) != (old.shape, old.dtype):
            actual = f"{new.dtype} of shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
            raise ValueError(f"{what} must be {old.dtype} of shape {tuple(old.shape)}, given {actual}")
        return new.detach().clone()
    if not isinstance(new, (int, float) if isinstance(old, float) else type(old)):
        raise ValueError(f"{what} must be like {old!r}, given {new!r:.60}")
    return new


def load_parts(parts: Mapping[Any, Any], states: Any, what: str) -> None:
    """Load a state for each part, an object with `state_dict` and `load_state_dict`; ValueError, and no part changes,
    if one does not fit."""
    if not isinstance(states, Mapping) or set(states) != set(parts):
        raise ValueError(f"the state of {what} has entries {sorted(map(str, parts))}, given {states!r:.60}")
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    try:
        for name, part in parts.items():
            part.load_state_dict(states[name])
    except Exception as error:
        for name, part in parts.items():
            part.load_state_dict(before[name])
        raise ValueError(f"the state does not fit {what}: {' '.join(str(error).split())}") from error


def load_optimizer(optimizer: Optimizer, state: Any, what: str) -> None:
    """Load a copy of an optimizer's `state_dict`; ValueError, and nothing changes, if it is another optimizer's.

    Moments must have the shapes of their parameters, and get their layout in memory: torch's fused kernels would write
    past the end. How steps are executed stays as it is.
    """
    current = optimizer.state_dict()["param_groups"]
    groups = state["param_groups"] if isinstance(state, Mapping) and set(state) == {"state", "param_groups"} else []
    if [len(group.get("params", ())) for group in groups] != [len(group["params"]) for group in current]:
        raise ValueError(f"{what} has other groups of parameters")
    for group, mine in zip(groups, current, strict=True):
        if lacking := set(mine) - set(group) - {"param_names", "initial_lr"}:
            raise ValueError(f"{what} is that of another optimizer: it lacks {', '.join(sorted(lacking))}")
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if not set(state["state"]) <= set(range(len(params))):
        raise ValueError(f"{what} has other parameters")
    entries = {i: {k: _moment(k, t, params[i], what) for k, t in entry.items()} for i, entry in state["state"].items()}
    execution = [{name: mine[name] for name in EXECUTION if name in mine} for mine in current]
    groups = [{**group, **mine} for group, mine in zip(copy.deepcopy(groups), execution, strict=True)]
    optimizer.load_state_dict({"state": entries, "param_groups": groups})


def _moment(name: str, value: Any, p: Tensor, what: str) -> Any:
    """Return a copy of an entry of an optimizer's state; of the parameter's shape, in its layout."""
    if not isinstance(value, Tensor) or value.shape != p.shape:
        if name in MOMENTS and value is not None:
            raise ValueError(f"{name} of {what} must have the parameter's shape {tuple(p.shape)}, given {value!r:.60}")
        return copy.deepcopy(value)
    return torch.empty_like(p, dtype=value.dtype, device=value.device, requires_grad=False).copy_(value.detach())


def overwrite(old: Any, new: Any, ok: Tensor | None = None) -> None:
    """Write a tree of new tensors over old ones, which stay where they are; all of them, or none unless ok."""
    for a, b in zip(pytree.tree_leaves(old), pytree.tree_leaves(new), strict=True):
        if ok is None:
            a.copy_(b)
        else:  # compiled, torch does not write to a float64 on a CPU that has no dimension
            torch.atleast_1d(a).copy_(torch.where(ok, b, a))


def demand_separate(named: Iterable[tuple[str, Tensor]]) -> None:
    """Raise ValueError for a trained parameter that is expanded or has gaps in memory: fused kernels take its entries
    to lie side by side."""
    for name, p in named:
        if p.requires_grad and not (p.layout == torch.strided and torch.ops.aten.is_non_overlapping_and_dense(p)):
            raise ValueError(
                f"parameter {name}, of shape {tuple(p.shape)} and strides {p.stride()}, is expanded or has gaps in "
                "memory; copy it before training: p.data = p.data.clone()"
            )


def all_finite(t: Tensor) -> Tensor:
    """Return whether all entries are finite, by their sum, which is much faster than checking each: a tensor. A sum
    that overflows counts as not finite.

    >>> all_finite(torch.tensor([1.0, 2.0])), all_finite(torch.tensor([1.0, torch.nan]))
    (tensor(True), tensor(False))
    """
    return t.sum().isfinite()


def zero_if_finite(t: Tensor) -> Tensor:
    """Return 0 if all entries are finite, by their sum as in `all_finite`, else NaN. Torch's compiler would take an
    integer 0 times a tensor for 0.

    >>> zero_if_finite(torch.tensor([1.0, 2.0])), zero_if_finite(torch.tensor([1.0, torch.inf]))
    (tensor(0.), tensor(nan))
    """
    return 0.0 * t.sum()
