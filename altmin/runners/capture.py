"""What a captured step is: a mini-batch as a function of tensors that stay on the device.

No result of a captured step is read back. Learning rates, mu and whether the step is accepted are tensors; a step that
is not finite, and every one after it, leaves weights, moments, mu and statistics unchanged until the next
`CapturedStep.pull`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus import Map
from altmin.calculus.context import Context
from altmin.calculus.numbers import Scalars, Tensors
from altmin.common.errors import Diverged
from altmin.common.state import overwrite
from altmin.core.chain import Theta
from altmin.core.penalty import grown
from altmin.core.step import Moved, move_codes
from altmin.core.trainer import AltMin, Metrics
from altmin.core.weights.updates import Proposal
from altmin.methods.backprop import Backprop, LossOnly
from altmin.runners.ensemble import Ensemble
from altmin.runners.full_graph import FullGraph
from altmin.runners.optimizer_on_device import OptimizerOnDevice, all_finite

WHOLE = 64
"""Blocks up to which a step is compiled; a longer one would take minutes."""
WITH_ADAM = {"cuda": 48, "cpu": 1 << 17}
"""How many parameters there may be for Adam's step to be part of that: on a GPU tensors, since for more of them its own
kernel is as fast and compiling takes less time; on a CPU entries, since its own kernel takes one pass over memory."""


class CapturedStep:
    """One method's step on the device alone. Here for a method that reads no number it computes.

    kinds: of steps that differ in what they compute; each is captured by itself.
    """

    kinds: tuple[bool, ...] = (False,)

    def run(self, x: Tensor, y: Tensor, kind: bool = False, **how: Any) -> Tensor:
        """One mini-batch; what `metrics` needs of it. how: what the method's own step takes besides."""
        raise NotImplementedError

    def begin_step(self) -> bool:
        """Counts a step; its kind."""
        return False

    def metrics(self, values: Tensor) -> Any:
        """The return value of the method's own step, as far as it is known."""
        return LossOnly(values)

    def losses(self, values: Tensor) -> Tensor:
        """The loss of the method, or of each member of an ensemble, in double precision."""
        return values.detach().double()

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        raise NotImplementedError

    def push(self) -> None:
        """Copies what has changed on the CPU (learning rates, mu) to the device. ValueError if something changed that
        is part of the capture."""

    def pull(self) -> int | None:
        """Waits for the device and copies back what it has changed. None if all steps since the last call were
        accepted, else the number of steps before the first that was not finite; later steps are accepted again."""
        return None


def check_capturable(method: Any) -> None:
    """ValueError, which says why, if a step of the method cannot be captured."""
    first = method.methods[0] if isinstance(method, Ensemble) else method
    decides = f"{type(first).__name__} decides on the processor how to go on"
    reason = first.why_not_captured() if hasattr(first, "why_not_captured") else decides
    if reason:
        raise ValueError(f"this step cannot be captured: {reason}")


def can_capture(method: Any) -> bool:
    """Whether a step of the method can be captured."""
    try:
        check_capturable(method)
    except ValueError:
        return False
    return True


class LaterMetrics:
    """`Metrics` of a captured step, taken from its vector when one is read: to take them costs as much as a small
    step."""

    def __init__(self, values: Tensor, sizes: list[float], dtype: torch.dtype):
        self._values, self._sizes, self._dtype = values, sizes, dtype

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        loss, mu, objective = self._values[:3]
        costs, moved = self._values[3:].split(len(self._sizes)) if self._sizes else (self._values[:0],) * 2
        return getattr(Metrics(loss.to(self._dtype), mu, objective, costs, moved, self._sizes), name)


@singledispatch
def captured(method: Any, fuse: bool, context: Context) -> CapturedStep:
    """The method's step as it is captured. fuse: whether small operations are compiled into few kernels, where that is
    known to work. context: how products are rounded."""
    raise ValueError(
        f"this step cannot be captured: nobody has said how one of {type(method).__name__} runs on tensors"
    )


@captured.register(AltMin)
class AltMinStep(CapturedStep):
    """`AltMin.step`. fuse: whether it is compiled as a whole, as soon as its optimizer has its state: with Adam from
    the first time on, otherwise from the second. Where torch cannot compile it, which is said once, and with more than
    `WHOLE` blocks, it is not."""

    def __init__(self, am: AltMin, fuse: bool, context: Context):
        self.am, self.local = am, am.updates.local
        self.optimizer = None if self.local is None else OptimizerOnDevice(self.local.optimizer)
        first = am.theta[0][0]
        self.context, self.dtype, self.sizes = replace(context, numbers=Tensors), first.dtype, list[float]()
        groups = [] if self.local is None else self.local.optimizer.param_groups
        self.trained = [p for group in groups for p in group["params"]]
        """The parameters of the optimizer."""
        self.places = self._places()
        compiles = fuse and len(am.chain) <= WHOLE
        self.compiled = FullGraph(AltMinStep._compute_all, self, first.device) if compiles else None
        self.adam = self.local is not None and self.local.adam_alone
        parameters = list(am.model.parameters())
        count = len(parameters) if first.is_cuda else sum(p.numel() for p in parameters)
        self.adam_inside = self.adam and count <= WITH_ADAM[first.device.type]
        self.ready = self.adam or self.local is None
        """Whether the optimizer has the state that a compiled step needs."""
        self.channels_last = _gains_by_channels_last(am.model, context)
        self.kinds = (True, False) if am.updates.refreshes else (False,)
        self.known = am.penalty.value
        self.settings: list[dict[str, Any]] | None = None
        """The options of the code solver and the penalty at the first `push`, after the capture."""
        self.rates = {name: torch.zeros((), dtype=self.dtype, device=first.device) for name in am.updates.rates}
        """Of a weight rule that is not an optimizer, on the device; see `push`."""
        self.rates_known = dict[str, float]()
        self._push_rates()
        self.state = torch.tensor([1.0, 0.0, self.known], dtype=torch.float64, device=first.device)
        """Whether all steps have been finite (1, else 0), how many were taken, and mu."""

    def begin_step(self) -> bool:
        kind = self.am.updates.refresh
        self.am.updates.count += 1
        return kind

    @torch.no_grad()
    def run(self, x: Tensor, y: Tensor, kind: bool = False, **how: Any) -> Tensor:
        """kind: whether rules compute again what they keep for several updates; such a step is not compiled."""
        self.am.check_once(x, y)
        for p in self.trained:  # otherwise old gradients stay in memory until the new ones are known
            p.grad = None
        if self.adam and self.optimizer is not None:
            self.optimizer.begin_adam()
        values, state, ok, self.sizes, contributions, proposals, statistics, kept = self._computed(x, y, kind)
        self.state.copy_(state)
        if self.local is not None and self.optimizer is not None and contributions is not None:
            with self.optimizer.swapped(1.0 - ok.float()):
                self.local.update(contributions, check=False)
        self.am.updates.write(proposals, ok)
        overwrite(self.am.code_states, kept, ok)
        commit(statistics, ok)
        return values

    def _compute(self, theta: Theta, x: Tensor, y: Tensor, context: Context, refresh: bool) -> tuple[Any, ...]:
        """The whole step up to the weights; nothing changes. theta: those of the model, as products read them."""
        am, updates, mu = self.am, self.am.updates, self.state[2].to(self.dtype)
        moved = move_codes(am.chain, theta, am.solver(am.code_states), am.loss, x, y, mu, context)
        found = {l: updates.measure(l, theta[l], problem) for l, problem in enumerate(moved.problems)}
        proposals = updates.propose(am.theta, updates.states, found, len(x), self.rates, refresh)
        settled = _settled(moved, proposals, self.state, am.penalty.increment, am.penalty.maximum)
        sizes = [problem.delta.numel() for problem in moved.problems[:-1]]
        contributions = None if self.local is None else {l: found[l] for l in self.local.blocks}
        return *settled, sizes, contributions, proposals, moved.statistics, moved.solver_states

    def _compute_all(self, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """`_compute` with the next state and statistics written and, if the weights are Adam's and few enough, their
        update; what is written is then left out."""
        theta: Theta = self.am.theta
        if self.channels_last:
            x, theta = _channels_last(x), [[_channels_last(p) for p in block] for block in theta]
        context = replace(self.context, numbers=Scalars, traced=True)
        values, state, ok, sizes, contributions, proposals, statistics, kept = self._compute(
            theta, x, y, context, refresh=False
        )
        self.state.copy_(state)
        commit(statistics, ok)
        if self.adam_inside:
            assert self.local is not None
            assert self.optimizer is not None
            self.optimizer.step_adam(dict(self.local.of_parameters(contributions)), ok)
            contributions = None
        return values, self.state, ok, sizes, contributions, proposals, [], kept

    def _computed(self, x: Tensor, y: Tensor, refresh: bool) -> tuple[Any, ...]:
        """`_compute`, compiled if it is to be."""
        found = self.compiled(x, y) if self.compiled and self.ready and not refresh else None
        self.ready = self.ready or not refresh
        return found or self._compute(self.am.theta, x, y, self.context, refresh)

    def metrics(self, values: Tensor) -> Any:
        return LaterMetrics(values, self.sizes, self.dtype)

    def losses(self, values: Tensor) -> Tensor:
        return values[:1]

    def tensors(self) -> list[Tensor]:
        optimizer = [] if self.optimizer is None else self.optimizer.tensors()
        return [self.state, *self.am.model.buffers(), *optimizer, *self._own()]

    def _own(self) -> list[Tensor]:
        """Parameters and state of blocks whose rule is not an optimizer, and the state of the code solver."""
        states = self.am.updates.states
        return [*(t for l in states for t in self.am.theta[l]), *pytree.tree_leaves((states, self.am.code_states))]

    def push(self) -> None:
        self.am.chain.demand_unchanged()
        if self.optimizer is not None:
            self.optimizer.push()
        if self._places() != self.places:
            raise ValueError(
                "the tensors of the weight rule or the code solver are no longer those of the captured step: they were "
                "moved, loaded, frozen or freed; make a new Recorded(method)"
            )
        self.settings = self.settings or self._settings()
        if self._settings() != self.settings:
            raise ValueError(
                f"options of the code solver and the penalty are part of the capture: {self.settings}, now "
                f"{self._settings()}; make a new Recorded(method)"
            )
        if self.am.penalty.value != self.known:
            self.known = self.am.penalty.value
            self.state[2].fill_(self.known)
        self._push_rates()

    def _settings(self) -> list[dict[str, Any]]:
        """Numbers and names that `_compute` reads from the code solver and the penalty; mu itself is on the device."""
        held = (getattr(each, "__dict__", {}) for each in (self.am.codes, self.am.penalty))
        plain = (int, float, str, type(None))
        return [{k: v for k, v in each.items() if k != "value" and isinstance(v, plain)} for each in held]

    def _push_rates(self) -> None:
        now = self.am.updates.rates
        for name in self.rates if now != self.rates_known else ():
            self.rates[name].fill_(now[name])
        self.rates_known = now

    def pull(self) -> int | None:
        ok, taken, mu = self.state.tolist()
        self.am.penalty.value = self.known = mu
        self.state[0].fill_(1.0)
        self.state[1].zero_()
        if not ok:
            self.am.updates.recount()
        if self.optimizer is not None and not all_finite(self.optimizer.tensors()):
            raise Diverged("a weight or one of the optimizer's moments", "lower the learning rate")
        return None if ok else int(taken)

    def _places(self) -> list[tuple[int, bool]]:
        """Where the tensors of the weight rule and the code solver lie, and whether they are trained."""
        return [(t.data_ptr(), t.requires_grad) for t in self._own()]


@captured.register(Backprop)
class BackpropStep(CapturedStep):
    """`Backprop.step`."""

    def __init__(self, method: Backprop, fuse: bool, context: Context):
        self.method, self.optimizer, self.context = method, OptimizerOnDevice(method.optimizer), context

    def run(self, x: Tensor, y: Tensor, kind: bool = False, **how: Any) -> Tensor:
        with self.optimizer.swapped(None):
            return self.method.step(x, y, context=self.context).loss

    def tensors(self) -> list[Tensor]:
        return [*self.method.model.buffers(), *self.optimizer.tensors()]

    def push(self) -> None:
        self.optimizer.push()


@captured.register(Ensemble)
class EnsembleStep(CapturedStep):
    """`Ensemble.advance`: mu, rates and who takes part lie on the device already, and a member that diverges takes no
    further part by itself. fuse: whether it is compiled as a whole, where torch can."""

    def __init__(self, ensemble: Ensemble, fuse: bool, context: Context):
        self.ensemble, self.context = ensemble, context
        compiles = fuse and len(getattr(ensemble.methods[0], "chain", ())) <= WHOLE
        self.compiled = FullGraph(Ensemble.advance_checked, ensemble, ensemble.alive.device) if compiles else None
        self.kinds = (True, False) if ensemble.refreshes else (False,)

    def begin_step(self) -> bool:
        kind = self.ensemble.refresh
        self.ensemble.count += 1
        return kind

    @torch.no_grad()
    def run(self, x: Tensor, y: Tensor, kind: bool = False, **how: Any) -> Tensor:
        each = self.ensemble.check(x, y, how.get("each"))
        found = self.compiled(x, y, each, self.context, kind) if self.compiled and not kind else None
        return self.ensemble.advance_checked(x, y, each, self.context, kind) if found is None else found

    def tensors(self) -> list[Tensor]:
        return self.ensemble.tensors()

    def push(self) -> None:
        self.ensemble.demand_views()


def _settled(
    moved: Moved, proposals: Mapping[int, Proposal], state: Tensor, increment: float, maximum: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Whether a step is accepted, and the next state.

    Returns loss, mu, objective, costs and squared movements of the hidden blocks in one vector; the next state (see
    `AltMinStep.state`), in which mu grows with every step that is taken; and whether the step is accepted.
    """
    before, taken, mu = state.unbind()
    numbers = [moved.loss, mu, moved.objective, *moved.costs[:-1], *moved.moved[:-1]]
    values = torch.stack([number.double() for number in numbers])
    ok = (before > 0) & moved.is_finite
    for each in proposals.values():
        ok = ok & each.finite
    new = torch.stack([ok.double(), taken + ok.double(), torch.where(ok, grown(mu, increment, 1.0, maximum), mu)])
    return values, new, ok


def commit(statistics: Sequence[tuple[Map, Any]], ok: Tensor) -> None:
    """`Map.commit` of all of them where ok; else they stay as they are."""
    held = [b for m, _ in statistics for b in m.module.buffers()]
    before = [b.clone() for b in held]
    for m, kept in statistics:
        m.commit(kept)
    for b, old in zip(held, before, strict=True):
        b.copy_(torch.where(ok, b, old))


def _gains_by_channels_last(model: nn.Module, context: Context) -> bool:
    """Whether most weights of a model on a GPU are convolutions of many channels whose operands are shortened: kernels
    for these want images with channels last, and otherwise each of them copies its operands."""
    shortened = context.bf16 or torch.backends.cudnn.allow_tf32
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]
    wide = sum(w.numel() for w in weights if min(w.shape[:2]) >= 32)
    return shortened and any(w.is_cuda for w in weights) and 2 * wide > sum(p.numel() for p in model.parameters())


def _channels_last(t: Tensor) -> Tensor:
    return t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t
