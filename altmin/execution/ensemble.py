"""`Ensemble`: many members, each with its own weights, data and options, in one program."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from altmin.errors import Diverged
from altmin.execution import alike
from altmin.execution.members import member_of
from altmin.execution.rules import keep
from altmin.execution.sheets import read_state, sheets, write_state
from altmin.methods.protocol import Method
from altmin.objective import CrossEntropy
from altmin.trainer import AltMin, check
from altmin.weights.memory import CoActivationMemory, Memory


@dataclass(frozen=True)
class EnsembleMetrics:
    """What one step saw, before the weights moved: an entry for each member, NaN for those that have diverged.

    loss, penalty and objective are those of `Metrics`; backprop has no penalty, and its objective is the loss.
    """

    loss: Tensor
    penalty: Tensor | None
    objective: Tensor


class Ensemble:
    """N ordinary methods of one kind, on models of one architecture, advanced together.

    Numbers may differ from member to member: learning rates, also of single blocks, eps, betas, weight decay, momentum,
    l1, all of the penalty, a numeric code step and its momentum, forget, damping and rate of a memory. All else must be
    alike. Every member's parameters become views into stacked ones: `member(i)` is an ordinary module, always up to
    date, and `methods[i]` an ordinary method that could go on alone.

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
        alike.check(methods)
        self._methods: list[Any] = list(methods)
        first = self._methods[0]
        self.model = nn.ModuleList([method.model for method in self._methods])
        """All members' models, whose `state_dict` holds every parameter."""
        self._parameters = [list(method.model.parameters()) for method in self._methods]
        self._member: Any = member_of(first)
        rules = [getattr(method, "weights", None) for method in self._methods]
        l1s = [getattr(getattr(rule, "rest", rule), "l1", 0.0) for rule in rules]
        optimizers = [method.optimizer for method in self._methods]
        self.sheets = sheets(self._parameters, optimizers, l1s, self._member.fitted)
        self._member.sheets = self.sheets
        device = self._parameters[0][0].device
        self._penalised = isinstance(first, AltMin)
        self._options: dict[str, Any] = {
            "sheets": [sheet.varied for sheet in self.sheets],
            "own": self._own_options(device),
        }
        if self._penalised:
            penalties = [method.penalty for method in self._methods]
            for name in ("increment", "growth", "maximum"):
                values = [getattr(penalty, name) for penalty in penalties]
                self._options[name] = _stacked([float("inf") if v is None else v for v in values], device)
        self._stack(device)
        self.alive = torch.ones(len(self), dtype=torch.bool, device=device)
        """Which members still take part."""
        self.doubtful = torch.zeros_like(self.alive)
        """Which members `advance` has passed over, in the last step, for a step that should have been halved."""
        self._complete = True  # whether all members are known to take part
        self._steps = torch.zeros((), dtype=torch.int64, device=device)
        self._masked = torch.zeros(len(self), dtype=torch.int64, device=device)
        self._nan = torch.full((), float("nan"), dtype=self._parameters[0][0].dtype, device=device)
        self._random = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in first.model.modules())
        self.optimizer = SimpleNamespace(param_groups=[{"lr": s.varied["lr"]} for s in self.sheets if s.rule])
        """What `altmin.fit`'s schedules move: groups whose "lr" is a tensor with one rate for each member."""

    def __len__(self) -> int:
        return len(self._methods)

    def member(self, i: int) -> nn.Module:
        """Member i's model: an ordinary module, its parameters and buffers views into the stacked ones.

        torch.save writes all that a view looks into: to keep one member by itself, save copy.deepcopy(member(i))."""
        return self._methods[i].model

    def demand_views(self) -> None:
        """Complains if parameters no longer are views into the stacked ones, which then would train unseen."""
        sheet = self.sheets[0]
        if self._parameters[0][sheet.places[0]].data_ptr() != sheet.rows["weights"].data_ptr():
            raise ValueError(
                "the members' parameters no longer lie in this Ensemble: they were moved (model.to), copied "
                "(copy.deepcopy) or put into another one; build a new Ensemble from the methods"
            )

    @property
    def methods(self) -> list[Method]:
        """The members as ordinary methods, brought up to date when asked for: each could go on alone.

        Weights and moments are views; mu, memories and counts are copies, which the ensemble does not read back."""
        for i in range(len(self)):
            self._write(i)
        return list(self._methods)

    @property
    def steps(self) -> int:
        """How many steps have been taken."""
        return int(self._steps)

    @property
    def diverged(self) -> dict[int, int]:
        """Members that have diverged, and the step, counted from 1, in which they did."""
        return {i: step for i, step in enumerate(self._masked.tolist()) if step}

    def step(self, x: Tensor, y: Tensor, each: bool | None = None) -> EnsembleMetrics:
        """One mini-batch for all members, or one for each: x (batch, ...) and y (batch, ...), or with one dimension
        more in front. each: which of the two; None is for labels, of which y tells by its dimensions.

        A step that should have been halved is done again, so that all members go where they would alone."""
        each = self._each(x, y, each)
        penalty = self._state["mu"].clone() if self._penalised else None
        new, found = self._compute(x, y, each)
        before, doubtful = self.alive.clone(), self._doubtful(found)
        failed = self._failed(found, doubtful)
        some_doubtful, some_failed = torch.stack([doubtful.any(), failed.any()]).tolist()
        if some_failed:
            self._blame_labels(x, y, each, failed)
        self._keep(new, doubtful, failed, all_well=not some_doubtful and not some_failed and self._complete)
        self._complete = self._complete and not some_failed
        if some_doubtful:
            found["objective"] = self._redo(x, y, each, doubtful, found["objective"])
        if (some_failed or some_doubtful) and not bool(self.alive.any()):
            raise Diverged(f"the objective of {'every member' if len(self) > 1 else 'the only member'}")
        loss, objective = (torch.where(before, found[name], self._nan) for name in ("loss", "objective"))
        return EnsembleMetrics(loss, penalty, objective)

    def advance(self, x: Tensor, y: Tensor, each: bool | None = None, thorough: bool = False) -> Tensor:
        """`step` without a look at what came of it: no answer of the device is waited for, so that it can be recorded
        as a CUDA graph. Returns the members' losses.

        Members whose step should have been halved are passed over, and `doubtful` tells which; thorough, every step is
        halved as often as any could need, and none is (but for one of a memory that cannot be solved for)."""
        each = self._each(x, y, each)
        new, found = self._compute(x, y, each, thorough)
        before, doubtful = self.alive.clone(), self._doubtful(found)
        self._complete = False  # as far as is known here
        self._keep(new, doubtful, self._failed(found, doubtful))
        return torch.where(before, found["loss"], self._nan)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Closes a pass over the data: mu grows."""
        if self._penalised:
            mu = torch.minimum(self._state["mu"] * self._options["growth"], self._options["maximum"])
            keep(self.alive, [mu], [self._state["mu"]])

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        return [*_leaves(self._state), self.alive, self.doubtful, self._steps, self._masked]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the models' own parameters, which are in `model.state_dict()`."""
        members = [method.state_dict() for method in self.methods]
        return {"members": members, "steps": self.steps, "masked": self._masked.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        missing = {"members", "steps", "masked"} - set(state)
        if missing:
            raise ValueError(f"this is not the state of an Ensemble: it lacks {', '.join(sorted(missing))}")
        if len(state["members"]) != len(self):
            raise ValueError(
                f"the state is of {len(state['members'])} members, this Ensemble has {len(self)}; "
                "build it from as many methods"
            )
        for i, (method, own) in enumerate(zip(self._methods, state["members"], strict=True)):
            method.load_state_dict(own)
            self._read(i)
        self._steps.fill_(state["steps"])
        self._masked.copy_(torch.tensor(state["masked"], device=self._masked.device))
        self.alive.copy_(self._masked == 0)
        self._complete = not any(state["masked"])
        self.doubtful.zero_()

    def _own_options(self, device: torch.device) -> dict[str, Tensor]:
        """The methods' own numbers, those that are not the same for all."""
        own = [self._member.options(method) for method in self._methods]
        columns = {name: [each[name] for each in own] for name in own[0]}
        return {name: _stacked(v, device) for name, v in columns.items() if any(each != v[0] for each in v)}

    @torch.no_grad()
    def _stack(self, device: torch.device) -> None:
        """All members' state, and views of it for their buffers."""
        buffers = [list(_buffers(method.model)) for method in self._methods]
        stacked = [torch.stack([m._buffers[name] for m, name in own]) for own in zip(*buffers, strict=True)]
        for i, own in enumerate(buffers):
            for (m, name), whole in zip(own, stacked, strict=True):
                m._buffers[name] = whole[i]
        rows = [sheet.rows for sheet in self.sheets]
        self._state: dict[str, Any] = {"rows": rows, "buffers": stacked, "step": _stacked([0.0] * len(self), device)}
        if self._penalised:
            self._state["mu"] = torch.zeros_like(self._state["step"])
            self._state["memories"] = {}
            rule = self._methods[0].weights
            for l in rule.blocks if isinstance(rule, CoActivationMemory) else ():
                p = self._methods[0].theta[l]
                n, m = len(p[0]), sum(q[0].numel() for q in p)
                A, B = (p[0].new_zeros(len(self), height, m) for height in (m, n))
                self._state["memories"][l] = (A, B, torch.zeros_like(self._state["mu"]))
        for i in range(len(self)):
            self._read(i)

    @torch.no_grad()
    def _read(self, i: int) -> None:
        """Takes over member i's state from its method."""
        method, steps = self._methods[i], 0.0
        for sheet in self.sheets:
            if sheet.rule:
                steps = max(steps, read_state(sheet, i, self._parameters[i], method.optimizer))
        self._state["step"][i] = steps
        if self._penalised:
            self._state["mu"][i] = method.penalty.value
            for l, stacked in self._state["memories"].items():
                memory = method.weights.memories.get(l)
                for whole, part in zip(stacked, memory or (0.0, 0.0, 0.0), strict=True):
                    whole[i] = part

    def _write(self, i: int) -> None:
        """Brings member i's method up to date."""
        method, step = self._methods[i], self._state["step"][i].item()
        for sheet in self.sheets:
            if sheet.rule:
                write_state(sheet, i, self._parameters[i], method.optimizer, step)
        if self._penalised:
            method.penalty.value = self._state["mu"][i].item()
            for l, (A, B, samples) in self._state["memories"].items():
                if samples[i]:
                    method.weights.memories[l] = Memory(A[i], B[i], samples[i].item())

    def _each(self, x: Tensor, y: Tensor, each: bool | None) -> bool:
        """Whether every member has a mini-batch of its own; complains of one that does not fit."""
        self.demand_views()
        first = self._parameters[0][0]
        if each is None and isinstance(x, Tensor) and isinstance(y, Tensor):
            labels = not y.is_floating_point()
            each = labels and y.ndim == 2
            if not labels and x.ndim > 2 and y.ndim > 1 and x.shape[:2] == y.shape[:2] and len(x) == len(self):
                raise ValueError(
                    f"inputs {tuple(x.shape)} and targets {tuple(y.shape)} can be one mini-batch for all {len(self)} "
                    "members or one for each; say which with each=False or each=True"
                )
        if not each:
            check(x, y, first)
            return False
        if len(x) != len(self) or len(y) != len(self):
            raise ValueError(
                f"a mini-batch for each of {len(self)} members has that many entries in front, "
                f"given inputs {tuple(x.shape)} and targets {tuple(y.shape)}"
            )
        check(x[0], y[0], first)
        return True

    @torch.no_grad()
    def _compute(self, x: Tensor, y: Tensor, each: bool, thorough: bool = False) -> tuple[Any, dict[str, Tensor]]:
        """Every member's next state and what came of its step; nothing is written."""
        self._member.follow(self.member(0))
        if self._random and not each:  # each member draws numbers of its own
            x, y, each = x.expand(len(self), *x.shape), y.expand(len(self), *y.shape), True

        def one(state: Any, options: Any, x: Tensor, y: Tensor) -> Any:
            return self._member.step(state, options, x, y, thorough)

        dims = (0, 0, 0, 0) if each else (0, 0, None, None)
        try:
            return torch.func.vmap(one, in_dims=dims, randomness="different")(self._state, self._options, x, y)
        finally:
            self._member.release()

    def _doubtful(self, found: dict[str, Tensor]) -> Tensor:
        return self.alive & found["doubtful"] & found["loss"].isfinite()

    def _failed(self, found: dict[str, Tensor], doubtful: Tensor) -> Tensor:
        return self.alive & ~doubtful & ~found["finite"]

    @torch.no_grad()
    def _keep(self, new: Any, doubtful: Tensor, failed: Tensor, all_well: bool = False) -> None:
        """Writes the next state of those members with which all is well."""
        self._steps += 1
        self._mark(failed)
        self.doubtful.copy_(doubtful)
        self._write_where(None if all_well else self.alive & ~doubtful, new)

    def _mark(self, failed: Tensor) -> None:
        self.alive &= ~failed
        self._masked.copy_(torch.where(failed, self._steps, self._masked))

    def _write_where(self, wanted: Tensor | None, new: Any) -> None:
        """Writes the next state of the members wanted; None is all."""
        moved = [n for n, sheet in enumerate(self.sheets) if sheet.rule or sheet.places[0] in self._member.fitted]
        trees = [[[state["rows"][n] for n in moved], {**state, "rows": ()}] for state in (new, self._state)]
        a, b = (list(_leaves(tree)) for tree in trees)
        if wanted is None:
            torch._foreach_copy_(b, a)
        else:
            keep(wanted, a, b)

    def _redo(self, x: Tensor, y: Tensor, each: bool, doubtful: Tensor, objective: Tensor) -> Tensor:
        """The step again for doubtful members, halved as often as it must be; the members' objectives then."""
        new, found = self._compute(x, y, each, thorough=True)
        unsolved = doubtful & found["doubtful"]
        failed = doubtful & ~unsolved & ~found["finite"]
        self._mark(failed)
        self._complete = False
        self._write_where(doubtful & ~unsolved & ~failed, new)
        objective = torch.where(doubtful, found["objective"], objective)
        for i in unsolved.nonzero().flatten().tolist():  # a singular memory: by its own method, which can ask
            self._write(i)
            try:
                self._methods[i].step(x[i] if each else x, y[i] if each else y)
            except Diverged:
                self._mark(torch.arange(len(self), device=x.device) == i)
            self._read(i)
        self.doubtful.zero_()
        return objective

    def _blame_labels(self, x: Tensor, y: Tensor, each: bool, failed: Tensor) -> None:
        """A label out of range is a mistake in the data, not divergence."""
        loss = getattr(self._methods[0], "loss", None)
        if isinstance(loss, CrossEntropy):
            for i in failed.nonzero().flatten().tolist():
                with torch.no_grad():
                    output = self.member(i)((x[i] if each else x)[:1])
                loss.check(output, y[i] if each else y)


def _stacked(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64, device=device)


def _buffers(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in model.modules():
        for name, value in module._buffers.items():
            if value is not None:
                yield module, name


def _leaves(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    else:
        for branch in (tree[key] for key in sorted(tree)) if isinstance(tree, dict) else tree:
            yield from _leaves(branch)
