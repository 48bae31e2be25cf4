"""Steps as functions of tensors that stay on the device: what a CUDA graph records and a compiler compiles.

No result is read back. Learning rates, mu and whether the step is accepted are tensors; a step that is not finite, and
every one after it, leaves weights, moments, mu and statistics unchanged until the next `pull`.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus import Map
from altmin.common.errors import Diverged
from altmin.common.state import overwrite
from altmin.core.chain import Theta
from altmin.core.losses import options_of
from altmin.core.penalty import grown
from altmin.core.step import move_codes, with_states
from altmin.core.trainer import AltMin, Metrics
from altmin.core.weights.local import LocalRule
from altmin.core.weights.rule import finite
from altmin.core.weights.updates import Problems
from altmin.methods.backprop import Backprop, LossOnly
from altmin.optim import CoActivation
from altmin.runners.compiling import MOST_BLOCKS, UNCOMPILED, FullGraph, own_functions
from altmin.runners.ensemble import Ensemble
from altmin.runners.functional import CompiledContext, FunctionalContext

WITH_ADAM = {"cuda": 48, "cpu": 1 << 17}
"""Largest model for which the step of a local rule is compiled with the rest: on a GPU in tensors, since for more of
them its own kernel is as fast and compiling takes less time; on a CPU in entries, since its own kernel takes
one pass over memory."""


class CapturedStep:
    """One method's step on the device alone. counter: counts updates and knows their kinds. compiled: of those kinds
    that are compiled, the frequent one always."""

    counter: Any = None
    compiled: Mapping[int, FullGraph] = {}

    def run(self, x: Tensor, y: Tensor, kind: int = 0, **how: Any) -> Tensor:
        """Take a step and return what `metrics` needs of it. how: what the method's own step takes besides."""
        raise NotImplementedError

    def check_traceable(self, method: Any, x: Tensor, y: Tensor) -> None:
        """Compile nothing, with a warning, if a method runs code that a compiler would change."""
        if any(graph.works is None for graph in self.compiled.values()) and (names := own_functions(method, x, y)):
            self.compiled = {}
            warnings.warn(f"{UNCOMPILED}: it may ignore the backward of {', '.join(names)}")

    @property
    def kinds(self) -> Sequence[int]:
        """Return all kinds of steps, the rare first, of which the first step is, and which make the state."""
        return range(1 if self.counter is None else self.counter.kinds)[::-1]

    def begin_step(self) -> int:
        """Count a step; return its kind."""
        if self.counter is None:
            return 0
        self.counter.count += 1
        kind: int = self.counter.kind(self.counter.count)
        return kind

    def metrics(self, values: Tensor) -> Any:
        """Return what the method's own step returns, as far as it is known."""
        return LossOnly(values)

    def tensors(self) -> list[Tensor]:
        """Return everything that a step changes."""
        raise NotImplementedError

    def push(self) -> None:
        """Copy what has changed on the CPU (learning rates, mu) to the device. ValueError if something has changed
        that is part of the recording."""

    def is_accepted(self) -> bool:
        """Wait for the device and copy back mu; return whether all steps since the last `pull` were accepted."""
        return True

    def pull(self) -> int | None:
        """Wait for the device and copy back what it has changed. Return None if all steps since the last call were
        accepted, else the number of steps before the first that was not finite; later ones are accepted again."""
        return None


class Rates:
    """The learning rates of a torch optimizer on its device, where recorded steps read them."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer: Any = optimizer
        self.rates: list[Tensor] = []
        for group in optimizer.param_groups:
            device, rate = next((p.device for p in group["params"]), torch.device("cpu")), group["lr"]
            there = isinstance(rate, Tensor) and rate.device == device
            self.rates.append(rate if there else torch.tensor(float(rate), dtype=torch.float32, device=device))
            if "capturable" in group and device.type == "cuda":
                group["capturable"] = True
            for p in group["params"]:
                if "step" in optimizer.state.get(p, {}):
                    optimizer.state[p]["step"] = optimizer.state[p]["step"].to(device)
        self.known = [group["lr"] for group in optimizer.param_groups]

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Let the optimizer read the rates on the device within."""
        groups = self.optimizer.param_groups
        before = [group["lr"] for group in groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate
        try:
            yield
        finally:
            for group, rate in zip(groups, before, strict=True):
                group["lr"] = rate

    def push(self) -> None:
        """Copy rates that have changed to the device."""
        for i, group in enumerate(self.optimizer.param_groups):
            if group["lr"] is not self.rates[i] and group["lr"] != self.known[i]:
                self.known[i] = group["lr"]
                self.rates[i].fill_(group["lr"])

    def tensors(self) -> list[Tensor]:
        """Return parameters and state."""
        state = [t for p in self.optimizer.state.values() for t in p.values() if isinstance(t, Tensor)]
        return [*(p for group in self.optimizer.param_groups for p in group["params"]), *state]

    def fixed(self) -> list[Any]:
        """Return what is part of the recording: the options other than the rate, the places of parameters, of the first
        one's state in each group, and which are trained. A scheduler adds options to groups that no step reads."""
        names = [name for name in self.optimizer.defaults if name != "lr"]
        groups = self.optimizer.param_groups
        params = [p for group in groups for p in group["params"]]
        state = [t for group in groups for t in self.optimizer.state.get(group["params"][0], {}).values()]
        places = [t.data_ptr() for t in (*params, *state) if isinstance(t, Tensor)]
        return [places, [p.requires_grad for p in params], [[group.get(name) for name in names] for group in groups]]


class LaterMetrics:
    """`Metrics` of a recorded step, taken from its vector when one is read: to take them costs as much as a small
    step."""

    def __init__(self, values: Tensor, sizes: list[float], dtype: torch.dtype):
        self._values, self._sizes, self._dtype = values, sizes, dtype

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        (loss, mu, objective), n = self._values[:3], len(self._sizes)
        costs, moved = self._values[3 : 3 + n], self._values[3 + n :]
        return getattr(Metrics(loss.to(self._dtype), mu, objective, costs, moved, self._sizes), name)


class AltMinStep(CapturedStep):
    """Step of `AltMin`. fuse: whether it is compiled as a whole, which it is not where torch cannot, which is said
    once, nor with more than `MOST_BLOCKS` blocks."""

    def __init__(self, am: AltMin, fuse: bool):
        self.am, first = am, am.theta[0][0]
        self.chain, self.loss = am.chain.functional(), am.loss.functional()
        self.dtype, self.sizes, self.counter = first.dtype, list[float](), am.updates
        parameters = list(am.model.parameters())
        count = len(parameters) if first.is_cuda else sum(p.numel() for p in parameters)
        self.kernels = {
            l for l, rule in am.updates.rules.items() if isinstance(rule, LocalRule) and rule.inner_steps == 1
        }
        """Blocks whose update may be kernels that work in place, not functions of tensors."""
        self.with_adam = count <= WITH_ADAM.get(first.device.type, 0)
        if fuse and len(am.chain) <= MOST_BLOCKS:
            kinds = am.updates.kinds if self.with_adam and first.is_cuda else 1
            self.compiled = {kind: FullGraph(AltMinStep._whole, self, first.device) for kind in range(kinds)}
        self.channels_last = _gains_by_channels_last(am.model)
        self.known = am.penalty.value
        self.numbers = am.updates.numbers()
        """Numbers of weight rules, with learning rates on the device."""
        self.rates = Rates(am.optimizer)
        for (_, blocks), rate in zip(am.updates.scheduled, self.rates.rates, strict=False):
            for l in blocks:
                self.numbers[l]["lr"] = rate
        self.before: list[Any] | None = None
        """Options and places that are part of the recording, once the first step has been taken."""
        self.recorded: list[Tensor] = []
        self.state = torch.tensor([1.0, 0.0, self.known], dtype=torch.float64, device=first.device)
        """Vector of whether all steps have been finite (1, else 0), how many were taken, and mu."""

    @torch.no_grad()
    def run(self, x: Tensor, y: Tensor, kind: int = 0, **how: Any) -> Tensor:
        self.am.check_once(x, y)
        self.check_traceable(self.am, x, y)
        result = self.compiled[kind](x, y, kind, True) if kind in self.compiled else None
        values, ok, self.sizes, grads, states = result or self._whole(x, y, kind, False)
        if states:
            overwrite(self.am.code_states, states, ok)
        if grads:
            self.am.updates.propose(grads, len(x), {}, self.numbers, kind).apply(ok)
        self.before = self.before or self._fixed()
        return values

    def _whole(self, x: Tensor, y: Tensor, kind: int, compiled: bool) -> tuple[Any, ...]:
        """Take the step. Return loss, mu, objective, costs and squared movements of the hidden blocks in one vector;
        whether the step is accepted; the sizes of the hidden codes; and what is still to be done: the contributions for
        rules with kernels, and the states of the code solver."""
        am, updates = self.am, self.am.updates
        theta: Theta = am.theta
        context = CompiledContext() if compiled else FunctionalContext()
        if compiled and self.channels_last:
            x, theta = _channels_last(x), [[_channels_last(p) for p in block] for block in theta]
        before, steps, mu = self.state.unbind()
        codes = with_states(am.codes, list(am.code_states.values()))
        moved = move_codes(self.chain, theta, codes, self.loss, x, y, mu.to(self.dtype), context)
        problems = dict(enumerate(moved.problems))
        contributions = updates.measure(theta, problems, kind=kind)
        numbers = [moved.loss, mu, moved.objective, *moved.costs[:-1], *moved.squares[:-1]]
        values = torch.stack([torch.as_tensor(n, device=mu.device).double() for n in numbers])
        ok = (before > 0) & moved.is_finite
        left: Mapping[int, Any] = {}
        if compiled:
            ok, left = self._compiled_update(contributions, len(x), problems, kind, ok)
        elif contributions:
            proposal = updates.propose(contributions, len(x), problems, self.numbers, kind)
            ok = ok & proposal.finite
            proposal.apply(ok)
        mu = torch.where(ok, grown(mu, am.penalty.increment, 1.0, am.penalty.maximum), mu)
        self.state.copy_(torch.stack([ok.double(), steps + ok.double(), mu]))
        _commit(moved.statistics, ok)
        sizes = [float(problem.delta.numel()) for problem in moved.problems[:-1]]
        return values, ok, sizes, left, moved.solver_states

    def _compiled_update(
        self, contributions: Mapping[int, Any], samples: int, problems: Problems, kind: int, ok: Tensor
    ) -> tuple[Tensor, Mapping[int, Any]]:
        """Take the update by functions of tensors, unless all of it is left to kernels. Return whether the step is
        accepted, by the checks of the ordinary one, and the contributions for kernels."""
        updates = self.am.updates
        if with_kernels := {l: contribution for l, contribution in contributions.items() if l in self.kernels}:
            ok = ok & updates.propose(with_kernels, samples, {}, self.numbers, kind).finite
        if len(self.kernels) == len(updates.rules) and not self.with_adam:
            return ok, contributions
        rates = updates.rates(samples, kind, self.numbers)
        changes = updates.changes(self.am.theta, updates.states, contributions, rates, problems)
        if others := {l: change for l, change in changes.items() if l not in self.kernels}:
            ok = ok & finite(others)
        updates.write(changes, ok)
        return ok, {}

    def metrics(self, values: Tensor) -> Any:
        return LaterMetrics(values, self.sizes, self.dtype)

    def tensors(self) -> list[Tensor]:
        states = pytree.tree_leaves((self.am.updates.states, self.am.code_states))
        model: list[Tensor] = [*self.am.model.buffers()]
        model.extend(self.am.model.parameters())
        return [self.state, *model, *states]

    def _fixed(self) -> list[Any]:
        """Return what is part of the recording: options and places of tensors; mu and rates are on the device."""
        plain = (int, float, str, tuple, type(None))
        rules = self.am.updates.rules.values()
        options = [
            {
                k: v
                for k, v in getattr(part, "__dict__", {}).items()
                if k not in ("value", "lr") and isinstance(v, plain)
            }
            for part in (self.am.codes, self.am.penalty, *rules)
        ]
        self.recorded = self.recorded or self.tensors()[1:]  # which stay where they are
        return [options, options_of(self.am.loss), [(t.data_ptr(), t.requires_grad) for t in self.recorded]]

    def push(self) -> None:
        self.am.chain.demand_unchanged()
        demand_same(self.before, self._fixed())
        self.rates.push()
        if self.am.penalty.value != self.known:
            self.known = self.am.penalty.value
            self.state[2].fill_(self.known)

    def is_accepted(self) -> bool:
        ok, _, self.known = self.state.tolist()
        self.am.penalty.value = self.known
        return bool(ok)

    def pull(self) -> int | None:
        steps, ok = int(self.state[1]), self.is_accepted()
        self.state[0].fill_(1.0)
        self.state[1].zero_()
        if not _all_finite([t for t in self.tensors()[1:] if t.is_floating_point()]):
            raise Diverged("a weight or one of its rule's numbers", "lower the learning rate")
        return None if ok else steps


class BackpropStep(CapturedStep):
    """Step of `Backprop`."""

    def __init__(self, method: Backprop, fuse: bool):
        self.method, self.optimizer = method, Rates(method.optimizer)
        self.before: list[Any] | None = None
        self.counter = method.optimizer if isinstance(method.optimizer, CoActivation) else None

    def run(self, x: Tensor, y: Tensor, kind: int = 0, **how: Any) -> Tensor:
        with self.optimizer.swapped(), self.counter.of_kind(kind) if self.counter else nullcontext():
            loss = self.method.step(x, y).loss
        self.before = self.before or self._fixed()
        return loss

    def _fixed(self) -> list[Any]:
        return [options_of(self.method.loss), *self.optimizer.fixed()]

    def tensors(self) -> list[Tensor]:
        return [*self.method.model.buffers(), *self.optimizer.tensors()]

    def push(self) -> None:
        demand_same(self.before, self._fixed())
        self.optimizer.push()


class EnsembleStep(CapturedStep):
    """Step of an `Ensemble`, by `advance_checked`: mu, rates and who takes part lie on the device already, and a
    member that diverges takes no further part by itself. fuse: as in `AltMinStep`."""

    def __init__(self, ensemble: Ensemble, fuse: bool):
        self.ensemble, self.counter = ensemble, ensemble
        compiles = fuse and len(getattr(ensemble.methods[0], "chain", ())) <= MOST_BLOCKS
        self.compiled = {0: FullGraph(Ensemble.advance_checked, ensemble, ensemble.alive.device)} if compiles else {}

    @torch.no_grad()
    def run(self, x: Tensor, y: Tensor, kind: int = 0, **how: Any) -> Tensor:
        each = self.ensemble.check(x, y, how.get("each"))
        self.check_traceable(self.ensemble.methods[0], *((x[0], y[0]) if each else (x, y)))
        result = self.compiled[kind](x, y, each, kind) if kind in self.compiled else None
        return self.ensemble.advance_checked(x, y, each, kind) if result is None else result

    def tensors(self) -> list[Tensor]:
        return self.ensemble.tensors()

    def push(self) -> None:
        self.ensemble.demand_unchanged()


STEPS: dict[type, Any] = {AltMin: AltMinStep, Backprop: BackpropStep, Ensemble: EnsembleStep}


def step_of(method: Any) -> Any:
    """Return the class of the method's recorded step; ValueError, which says why, if it cannot be recorded."""
    first: Any = method.methods[0] if isinstance(method, Ensemble) else method
    cls = next((step for kind, step in STEPS.items() if isinstance(method, kind)), None)
    reason = first.why_not_captured() if cls else f"{type(first).__name__} decides on the processor how to go on"
    if reason:
        raise ValueError(f"this step cannot be captured: {reason}")
    return cls


def captured(method: Any, fuse: bool) -> Any:
    """Return the method's step as it is recorded. fuse: whether it is compiled."""
    return step_of(method)(method, fuse)


def demand_same(before: list[Any] | None, now: list[Any]) -> None:
    """Raise ValueError if what is part of a recording has changed."""
    if before is not None and before != now:
        raise ValueError(
            "what is part of the recording has changed: options other than learning rate and mu, settings of layers or "
            "of the loss, weights or state that were moved, loaded, frozen or freed"
        )


def _all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether all numbers are finite; waits for the device."""
    largest = torch._foreach_norm([t for t in tensors if t.numel()], torch.inf)
    return bool(torch.stack([number.double().to(largest[0].device) for number in largest]).isfinite().all())


def _commit(statistics: Sequence[tuple[Map, Any]], ok: Tensor) -> None:
    """Commit the statistics of every map where ok; else they stay as they are."""
    buffers = [b for m, _ in statistics for b in m.module.buffers()]
    before = [b.clone() for b in buffers]
    for m, saved in statistics:
        m.commit(saved)
    for b, old in zip(buffers, before, strict=True):
        torch.atleast_1d(b).copy_(torch.where(ok, b, old))  # as in `overwrite`


def _gains_by_channels_last(model: nn.Module) -> bool:
    """Return whether most weights of a model on a GPU are convolutions of many channels whose operands are shortened:
    kernels for these want images with channels last, and otherwise each of them copies its operands."""
    shortened = torch.is_autocast_enabled("cuda") or torch.backends.cudnn.allow_tf32
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]
    wide = sum(w.numel() for w in weights if min(w.shape[:2]) >= 32)
    return shortened and any(w.is_cuda for w in weights) and 2 * wide > sum(p.numel() for p in model.parameters())


def _channels_last(t: Tensor) -> Tensor:
    return t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t
