"""A saved state is fitted to the object that loads it: checked and copied as a whole, before anything is written.

torch's fused kernels go through memory as it lies and check nothing: a moment of another shape is written past its end.
So a class says what its state looks like (`Stateful.state_form`), and `fitted` does the rest, here and nowhere else.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from altmin.common.errors import check_number

ALREADY_HERE = ("foreach", "capturable", "differentiable")
"""Options of how an optimizer is executed, which a loaded state leaves as they are."""
SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "acc_delta")
"""What torch's optimizers call moments that are never negative."""


class Stateful:
    """An object whose state is loaded as a whole or not at all. A subclass has two functions besides `state_dict`:

    state_form() -> form     what a state must be like, for `fitted`
    set_state(new)           goes on from a state that fits; it keeps the tensors, and does not fail
    """

    def state_form(self) -> Any:
        raise NotImplementedError

    def set_state(self, new: Any) -> None:
        raise NotImplementedError

    def load_state_dict(self, state: Any) -> None:
        """Goes on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        self.set_state(fitted(state, self.state_form(), type(self).__name__))


def fitted(new: Any, form: Any, what: str) -> Any:
    """A copy of a state; ValueError, which names the entry, unless it has this form, such as the present state of the
    object that loads it.

    Dicts have the same keys and sequences the same length. Tensors have the same type and shape, are on the same kind
    of device or on the CPU, and are finite if those of the form are; copies are on its devices and lie in memory as its
    tensors do. A sparse one has sparse rows, and may be dense. Numbers are finite where the form is, where it has an
    integer whole and not negative; all else is of the same type. A function in the form is called with the value and
    its name, and returns the copy. what: the name of the state in a message.

    >>> fitted({"mu": 1.0, "steps": [3]}, {"mu": 0.5, "steps": [0]}, "Penalty")
    {'mu': 1.0, 'steps': [3]}
    >>> fitted({"mu": math.nan, "steps": [3]}, {"mu": 0.5, "steps": [0]}, "Penalty")
    Traceback (most recent call last):
    ValueError: mu of Penalty must be a finite number, given nan
    """
    if callable(form):
        return form(new, what)
    if isinstance(form, Mapping):
        _check_names(new, what, form, form)
        return {name: fitted(new[name], value, f"{name} of {what}") for name, value in form.items()}
    if isinstance(form, list | tuple):
        if not isinstance(new, list | tuple) or len(new) != len(form):
            raise ValueError(f"{what} must be {len(form)} entries, given {_shown(new)}")
        pairs = enumerate(zip(new, form, strict=True))
        copies = [fitted(one, value, f"entry {i} of {what}") for i, (one, value) in pairs]
        return tuple(copies) if isinstance(new, tuple) else copies
    if isinstance(form, Tensor):
        return _fitted_tensor(new, form, what)
    if isinstance(form, int | float) and not isinstance(form, bool):
        return number(new, what, 0 if isinstance(form, int) else -math.inf, isinstance(form, int), math.isfinite(form))
    if type(new) is not type(form):
        raise ValueError(f"{what} must be like {form!r}, given {_shown(new)}")
    return new


def unchecked(value: Any, what: str) -> Any:
    """In a form: anything, which is not copied."""
    return value


def _check_names(state: Any, what: str, known: Iterable[Any], needed: Iterable[Any]) -> None:
    """ValueError unless the state is a dict that has all entries that are needed and none that is not known."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state of {what} is a dict, given {_shown(state)}")
    if missing := set(needed) - set(state):
        raise ValueError(f"this is not the state of {what}: it lacks {', '.join(sorted(map(str, missing)))}")
    if extra := set(state) - set(known):
        raise ValueError(f"this is not the state of {what}: it has {', '.join(sorted(map(str, extra)))} besides")


def number(value: Any, what: str, low: float = -math.inf, whole: bool = False, finite: bool = True) -> Any:
    """The value, a number or a tensor with one; ValueError unless it is finite, at least `low` and, if so wanted,
    whole. finite: False where it may be any float."""
    held = isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "meta"
    try:
        if finite or not isinstance(value, float):
            check_number(what, value.item() if held else value, low, whole=whole)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return int(value) if whole else value


def _fitted_tensor(value: Any, form: Tensor, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} must be a tensor, given {_shown(value)}")
    rows = form.is_sparse and value.is_sparse and value.sparse_dim() == 1
    if (value.shape, value.dtype) != (form.shape, form.dtype) or not (value.layout == torch.strided or rows):
        raise ValueError(f"{what} must be {form.dtype} of shape {tuple(form.shape)}, given {_shown(value)}")
    anywhere = value.ndim == 0 and value.device.type != "meta"  # a count of steps is where the steps are taken
    if value.device.type not in (form.device.type, "cpu") and not anywhere:
        raise ValueError(f"{what} belongs on {form.device.type}, given one on {value.device.type}; move it with .to")
    if _finite(form) and not _finite(value):
        raise ValueError(f"{what} holds numbers that are not finite")
    if form.is_sparse:
        return value.detach().to(form.device, copy=True)
    return torch.empty_like(form, requires_grad=False).copy_(value.detach())


def _finite(x: Tensor) -> bool:
    return bool((x._values() if x.is_sparse else x).isfinite().all())


def overwrite(old: Any, new: Any, ok: Tensor | None = None) -> None:
    """Writes a tree of new tensors over old ones, which stay where they are; all of them, or none unless ok."""
    for a, b in zip(pytree.tree_leaves(old), pytree.tree_leaves(new), strict=True):
        a.copy_(b if ok is None else torch.where(ok, b, a))


def by_number(
    state: Any,
    what: str,
    form: Mapping[int, Any],
    known: Collection[int],
    needed: Collection[int] = (),
    of: str = "block",
) -> dict[int, Any]:
    """`fitted`, of a dict by the numbers of blocks or parameters, which are among those `known` and have at least those
    `needed`. Entries without a form, as of other ranks' blocks, are left out."""
    _check_names(state, what, known, needed)
    return {l: fitted(state[l], own, f"{of} {l} of {what}") for l, own in form.items() if l in state}


def module_form(model: nn.Module) -> dict[str, Any]:
    """The form of `model.state_dict()`: parameters are finite, buffers where they are now."""
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: torch.zeros_like(t) if name in trained else t for name, t in model.state_dict().items()}


def fitted_optimizer(
    state: Any, what: str, optimizer: Optimizer, complete: bool = True, tables: Collection[int] = ()
) -> Any:
    """A copy of a state that `optimizer.load_state_dict` takes; ValueError unless it can go on from it.

    complete: whether every parameter that requires a gradient has taken part in every step. tables: the ids of
    parameters with sparse gradients.
    """
    groups, options = optimizer.state_dict()["param_groups"], {"params", *optimizer.defaults}
    params = [p for group in optimizer.param_groups for p in group["params"]]
    taken = state.get("state") if isinstance(state, Mapping) else None
    stepped = _stepped(optimizer, tables) if taken else {}
    trained = [i for i, p in enumerate(params) if p.requires_grad and p.numel()]
    entries = partial(
        by_number,
        form={i: partial(_fitted_entry, form=stepped.get(i, {})) for i in range(len(params))},
        known=range(len(params)),
        needed=trained if taken and complete else (),
        of="parameter",
    )
    form = {"param_groups": [partial(_fitted_group, own=own, options=options) for own in groups], "state": entries}
    return fitted(state, form, what)


def _fitted_entry(entry: Any, what: str, form: Mapping[str, Any]) -> Any:
    """What an optimizer keeps of one parameter; empty before its first step."""
    copy = fitted(entry, form, what) if entry else {}
    for name in set(SQUARES) & set(copy):
        if bool((copy[name] < 0).any()):
            raise ValueError(f"{name} of {what} is a mean of squares, given negative numbers")
    if "step" in copy:
        number(copy["step"], f"step of {what}", 0, whole=True)
    return copy


def _fitted_group(group: Any, what: str, own: Mapping[str, Any], options: Collection[str]) -> Any:
    """A group that has at least these options; one may have more, which are numbers, as a scheduler adds."""
    given = group if isinstance(group, Mapping) else {}
    names = [name for name in dict.fromkeys([*own, *given]) if name in options or name in given]
    return fitted(group, {name: partial(_fitted_option, name, own.get(name, 0.0)) for name in names}, what)


def _fitted_option(name: str, own: Any, value: Any, what: str) -> Any:
    if name in ALREADY_HERE or name == "param_names":
        return value if name == "param_names" else own
    if own is None or isinstance(own, bool | str | list):
        if type(value) is not type(own) or value != own:
            raise ValueError(f"{what} is {_shown(value)} in the state, here it is {_shown(own)}")
        return value
    if not isinstance(own, tuple):
        return number(value, what, 0.0 if own >= 0 else -math.inf)
    numbers = fitted(value, own, what)
    if name == "betas" and not all(0 <= beta < 1 for beta in numbers):
        raise ValueError(f"{what} must be at least 0 and below 1, given {value!r}")
    return numbers


def _stepped(optimizer: Optimizer, tables: Collection[int]) -> dict[int, Any]:
    """What such an optimizer keeps of each parameter once it has taken a step, by number: that of a twin whose
    parameters and gradients are zero. tables: as in `fitted_optimizer`."""
    twin = object.__new__(type(optimizer))
    vars(twin).update({name: {} if name.endswith("_hooks") else value for name, value in vars(optimizer).items()})
    vars(twin).update(state=defaultdict(dict), param_groups=[])
    vars(twin).pop("step", None)  # a scheduler's wrapper around the optimizer's own
    for group in optimizer.param_groups:
        params = [torch.zeros_like(p.detach()) for p in group["params"]]
        for p, like in zip(params, group["params"], strict=True):
            p.grad = torch.zeros_like(p).to_sparse(1) if id(like) in tables else torch.zeros_like(p)
        twin.param_groups.append({**group, "params": params})
    try:
        twin.step()
    except RuntimeError:  # what steps otherwise keeps nothing here: `Rates`
        return {}
    return twin.state_dict()["state"]


def demand_separate(named: Iterable[tuple[str, Tensor]]) -> None:
    """ValueError for a trained parameter that does not fill a piece of memory of its own, as fused kernels take it to.

    An expanded one has less memory than entries, a slice of columns has gaps, and two may lie over each other.
    """
    spans = []
    for name, p in named:
        if p.requires_grad and not (p.layout == torch.strided and torch.ops.aten.is_non_overlapping_and_dense(p)):
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


def _not_separate(what: str) -> ValueError:
    return ValueError(f"parameter {what}; give it memory of its own before training: p.data = p.data.clone()")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{'sparse ' if value.is_sparse else ''}{value.dtype} of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{type(value).__name__} {text[:37]}..."
