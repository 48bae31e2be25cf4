"""`Ensemble`: many members, each with its own weights, data and options, in one program."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.common.errors import Diverged
from altmin.common.state import load_parts, matched
from altmin.core.losses import adapt, options_of
from altmin.core.penalty import grown
from altmin.core.trainer import check
from altmin.methods.protocol import Method
from altmin.runners import compatible
from altmin.runners.members import TEMPLATES, Numbers, Result, State, buffers_of, put, values_of


@dataclass(frozen=True)
class EnsembleMetrics:
    """The numbers of one step, before the weights moved: an entry for each member, NaN for those that have diverged.

    loss, penalty and objective are those of `Metrics`; backprop has no penalty, and its objective is the loss.
    """

    loss: Tensor
    penalty: Tensor | None
    objective: Tensor


class Ensemble:
    """N ordinary methods of one kind, on models of one architecture, advanced together.

    Numbers may differ from member to member: learning rates, eps, betas, weight decay, momentum,
    l1 of the weights, and mu. All else must be the same. Every member's parameters become views into stacked ones:
    `member(i)` is an ordinary module, always up to date, and `methods[i]` an ordinary method that could go on alone.

    A member whose loss, objective or new weights are not finite keeps the weights from before that step and takes no
    further part; `diverged` tells which, and in which step. The others do not notice.

    >>> from altmin import methods, models
    >>> torch.manual_seed(0) and None
    >>> rates = [0.003, 0.03]
    >>> ensemble = Ensemble([methods.create("am-adam", models.mlp(2, (8,), 2), lr=lr) for lr in rates])
    >>> x, y = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1, 1, 0])
    >>> for _ in range(100):
    ...     metrics = ensemble.step(x, y)
    >>> metrics.loss.shape, ensemble.member(1)(x).argmax(1).tolist()
    (torch.Size([2]), [0, 1, 1, 0])
    """

    def __init__(self, methods: Sequence[Method]):
        compatible.check(methods)
        self._methods: list[Any] = list(methods)
        self.model = nn.ModuleList([method.model for method in self._methods])
        """All members' models, whose `state_dict` holds every parameter."""
        self._parameters = [list(method.model.parameters()) for method in self._methods]
        self._trained = [p.requires_grad for p in self.model.parameters()]
        self._losses = self._options()
        self._template: Any = TEMPLATES[type(methods[0])](self._methods[0])
        self.kinds: int = getattr(getattr(methods[0], "updates", None), "kinds", 1)
        """The number of kinds of steps, see `WeightRule.kind`."""
        self.alive = torch.ones(len(self), dtype=torch.bool, device=self._template.device)
        """Mask of the members that still take part."""
        self._state, self._numbers = self._stacked()
        self._steps = torch.zeros(len(self), dtype=torch.int64, device=self._template.device)
        """Number of steps of every member here."""
        self.count = self._most_updates()
        self._random = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in self.model.modules())
        rates = {id(numbers["lr"]): numbers["lr"] for numbers in self._numbers.values() if "lr" in numbers}
        self.optimizer = SimpleNamespace(param_groups=[{"lr": rate} for rate in rates.values()])
        """Parameter groups that `altmin.training`'s schedules move: "lr" is a tensor with one rate for each member."""

    def __len__(self) -> int:
        return len(self._methods)

    def member(self, i: int) -> nn.Module:
        """Return member i's model: an ordinary module, its parameters and buffers views into the stacked ones.

        torch.save writes all that a view looks into: to save one member by itself, save copy.deepcopy(member(i))."""
        return self._methods[i].model

    def _options(self) -> list[Any]:
        return [options_of(method.loss) for method in self._methods]

    def demand_unchanged(self) -> None:
        """Raise ValueError if parameters no longer are views into the stacked ones, which then would train unseen, or
        if losses have other options."""
        if self._options() != self._losses:
            raise ValueError("options of the members' losses have changed; build a new Ensemble from the methods")
        if self._parameters[0][0].data_ptr() != self._state.parameters[0].data_ptr():
            raise ValueError(
                "the members' parameters no longer lie in this Ensemble: they were moved (model.to), copied "
                "(copy.deepcopy) or put into another one; build a new Ensemble from the methods"
            )

    @property
    def methods(self) -> list[Method]:
        """The members as ordinary methods, updated when read: each could continue alone.

        Weights are views; all else is copied, and the ensemble does not read it back."""
        state = self._state.rules, self._state.other, self._numbers
        for i, method in enumerate(self._methods):
            self._template.write(method, *pytree.tree_map(lambda whole, i=i: whole[i], state))
        return list(self._methods)

    @property
    def steps(self) -> int:
        """Number of steps taken by those that have taken most."""
        return max(self._steps.tolist())

    @property
    def diverged(self) -> dict[int, int]:
        """Members that have diverged, and the step, counted from 1, in which they did."""
        alive, steps = self.alive.tolist(), self._steps.tolist()
        return {i: steps[i] + 1 for i in range(len(self)) if not alive[i]}

    def kind(self, step: int) -> int:
        """Return the kind of the step-th step, from 1."""
        return self._methods[0].updates.kind(step) if self.kinds > 1 else 0

    def exclude(self, i: int) -> None:
        """Let member i take no further part, as if it had diverged in its next step."""
        self.alive[i] = False

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, each: bool | None = None) -> EnsembleMetrics:
        """Take one mini-batch for all members, or one for each: x (batch, ...) and y (batch, ...), or with one
        dimension more in front. each: which of the two; None for labels, where the dimensions of y determine it.

        Waits for the device once. ValueError, or an error of torch, if the batch does not fit the models, or no
        member's is finite; then nothing has changed. `Diverged` if no member is left."""
        each = self.check(x, y, each)
        result = self._compute(x, y, each, self.kind(self.count + 1))
        alive, finite = torch.stack([self.alive, result.finite]).tolist()
        for i in range(len(self)):
            if alive[i] and not finite[i] and not y.is_floating_point():
                rows, labels = (x[i], y[i]) if each else (x, y)  # a label out of range is a mistake in the data
                adapt(self._methods[i].loss).check(copy.deepcopy(self.member(i)).eval()(rows[:1]), labels)
        left = any(a and b for a, b in zip(alive, finite, strict=True))
        if not left and not bool(x.isfinite().all() & y.isfinite().all()):
            raise ValueError("the batch holds NaN or infinite values; clean it before training (nothing was changed)")
        mu = self._state.other.get("mu")
        loss, objective = (value.masked_fill(~self.alive, torch.nan) for value in (result.loss, result.objective))
        metrics = EnsembleMetrics(loss, None if mu is None else mu.clone(), objective)
        self._write(result)
        self.count += 1
        if not left:
            raise Diverged(f"the objective of {'every member' if len(self) > 1 else 'the only member'}")
        return metrics

    def advance_checked(self, x: Tensor, y: Tensor, each: bool, kind: int) -> Tensor:
        """Take a `step` of a kind on a batch that was checked, without checking the result, inside `torch.no_grad`:
        nothing but tensors is read and changed. Return the members' losses, NaN for those that have diverged."""
        result = self._compute(x, y, each, kind)
        loss = result.loss.masked_fill(~self.alive, torch.nan)
        self._write(result)
        return loss

    @torch.no_grad()
    def end_epoch(self) -> None:
        """End an epoch and update mu."""
        if (mu := self._state.other.get("mu")) is not None:
            penalty = self._methods[0].penalty
            _overwrite(self.alive, grown(mu, 0.0, penalty.growth, penalty.maximum), mu)

    def tensors(self) -> list[Tensor]:
        """Return everything that a step changes."""
        return [*pytree.tree_leaves(self._state), self._steps, self.alive]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the models' own parameters, which are in `model.state_dict()`."""
        members = [method.state_dict() for method in self.methods]
        return {"members": members, "steps": self._steps.tolist(), "alive": self.alive.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        members = dict(enumerate(self.methods))
        counts = {"steps": [0] * len(self), "alive": [True] * len(self)}
        new = matched({name: state.get(name) for name in counts}, counts, "Ensemble")
        load_parts(members, dict(enumerate(state.get("members", ()))), "Ensemble")
        _overwrite(torch.ones_like(self.alive), self._read(), (*self._state[2:], self._numbers))
        self._steps.copy_(torch.tensor(new["steps"]))
        self.alive.copy_(torch.tensor(new["alive"]))
        self.count = self._most_updates()

    def _most_updates(self) -> int:
        """Return the number of updates of the members that have made most: those that have not diverged."""
        return int(self._state.other.get("count", self._steps).max())

    @torch.no_grad()
    def _stacked(self) -> tuple[State, Numbers]:
        """Return all members' state, of which their parameters and buffers become views, and numbers."""
        slots = [buffers_of(method) for method in self._methods]
        buffers = [torch.stack(column) for column in zip(*map(values_of, slots), strict=True)]
        parameters = [torch.stack([p.detach() for p in column]) for column in zip(*self._parameters, strict=True)]
        for i, method in enumerate(self._methods):
            for p, whole in zip(self._parameters[i], parameters, strict=True):
                p.data = whole[i]
            put(slots[i], [whole[i] for whole in buffers])
            if hasattr(method, "chain"):
                method.chain.note_buffers()
        rules, other, numbers = self._read()
        return State(parameters, buffers, rules, other), numbers

    @torch.no_grad()
    def _read(self) -> tuple[Any, Any, Numbers]:
        """Return all members' states of rules, `State.other` and numbers, without those that are zero for all. Blocks
        with one learning rate share its tensor."""
        device = self._template.device
        states = [self._template.read(method) for method in self._methods]
        rules, other = pytree.tree_map(lambda *tensors: torch.stack([t.to(device) for t in tensors]), *states)
        rows, shared = [self._template.numbers(method) for method in self._methods], dict[Any, Tensor]()
        numbers: Numbers = {g: {} for g in rows[0]}
        for g, names in rows[0].items():
            for name in names:
                column = tuple(float(row[g][name]) for row in rows)
                if any(column) or name in ("lr", "eps", "beta1", "beta2"):
                    tensor = torch.tensor(column, dtype=torch.float64, device=device)
                    numbers[g][name] = shared.setdefault((name, column), tensor)
        return rules, other, numbers

    def check(self, x: Tensor, y: Tensor, each: bool | None) -> bool:
        """Return whether every member has a mini-batch of its own. ValueError for one that does not fit."""
        self.demand_unchanged()
        for method in self._methods:
            if hasattr(method, "chain"):
                method.chain.demand_unchanged()
        if [p.requires_grad for p in self.model.parameters()] != self._trained:
            raise ValueError("parameters were frozen or freed after this Ensemble was built; build a new one")
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            raise TypeError(f"step takes tensors, given {type(x).__name__} and {type(y).__name__}")
        shapes = f"inputs {tuple(x.shape)} and targets {tuple(y.shape)}"
        if each is None:
            each = not y.is_floating_point() and y.ndim == 2 and x.ndim > 2
            enough = x.ndim > 1 + x.is_floating_point() and y.ndim > 1
            if not each and enough and x.shape[:2] == y.shape[:2] and len(x) == len(self):
                raise ValueError(
                    f"{shapes} can be one mini-batch for all members or one for each; say each=True or False"
                )
        if each and not len(x) == len(y) == len(self):
            raise ValueError(f"{shapes} are not one mini-batch for each of {len(self)} members, side by side in front")
        first = (x[0], y[0]) if each else (x, y)
        check(*first)
        if hasattr(self._methods[0], "check_once"):
            self._methods[0].check_once(*first)
        return each

    def _compute(self, x: Tensor, y: Tensor, each: bool, kind: int) -> Result:
        """Return the result of every member's step; nothing is written."""
        if self._random and not each:  # each member draws numbers of its own
            x, y, each = x.expand(len(self), *x.shape), y.expand(len(self), *y.shape), True
        dims = (0, 0, 0, 0) if each else (0, 0, None, None)
        step = torch.func.vmap(partial(self._template.step, kind=kind), in_dims=dims, randomness="different")
        return step(self._state, self._numbers, x, y)

    def _write(self, result: Result) -> None:
        """Write the new state of the members that take part where it is finite; the others take no further part."""
        self.alive &= result.finite
        _overwrite(self.alive, result.state, self._state)
        self._steps.add_(self.alive)


def _overwrite(ok: Tensor, new: Any, old: Any) -> None:
    """Write a tree of new tensors over old ones for the members whose ok is true."""
    for a, b in zip(pytree.tree_leaves(new), pytree.tree_leaves(old), strict=True):
        torch.where(ok.view(-1, *[1] * (b.ndim - 1)), a, b, out=b)
