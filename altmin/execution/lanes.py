"""A step that never asks: everything it needs and everything it leaves behind stays on the device.

An ordinary step looks at its own numbers: did the objective rise, is all finite? On a GPU the processor then waits for
the answer. A lane takes the step as if all were well, and where it is not leaves weights, moments and mu as they are,
from that step on, until somebody looks (`Lane.taken`) and does that one step in the ordinary way.
"""

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from altmin.codes.gradient import GradientCodes, Local
from altmin.codes.linesearch import Doubts
from altmin.execution.ensemble import Ensemble
from altmin.execution.rules import adamw, sgd
from altmin.execution.stacked import StackedCodes
from altmin.execution.storage import Group, Storage
from altmin.fusing import fusible_alone
from altmin.methods import Method
from altmin.methods.backprop import Backprop
from altmin.objective import AnyLoss
from altmin.trainer import AltMin
from altmin.weights.local import FusedAdam, LocalOptimizer
from altmin.weights.memory import CoActivationMemory


class Lane(Protocol):
    """One method's step without a question."""

    def advance(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        """One step; the batch's loss. how: what the method's own step takes besides."""

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""

    def before(self) -> None:
        """Brings what the processor knows (learning rates, mu) to the device."""

    def set_rates(self) -> None:
        """Of that, the learning rates, where a schedule has changed them."""

    def after(self) -> None:
        """And back."""

    def taken(self) -> int | None:
        """How many steps were taken since the last `forgive`, if one was not; None if all were."""

    def forgive(self) -> None:
        """Goes on after a step that was not taken."""

    @property
    def careful(self) -> int:
        """How many ordinary steps to take when one was not taken."""


def lane(method: Method | Ensemble) -> Lane:
    """The method's lane."""
    check_recordable(method)
    if isinstance(method, Backprop):
        return BackpropLane(method)
    if isinstance(method, Ensemble):
        return EnsembleLane(method)
    assert isinstance(method, AltMin)
    return AltMinLane(method)


def check_recordable(method: Method | Ensemble) -> None:
    """ValueError, which says why, if a step of this kind needs an answer from the device."""
    if isinstance(method, AltMin):
        _check(method)
    elif isinstance(method, Ensemble):
        if isinstance(getattr(method.methods[0], "weights", None), CoActivationMemory):
            raise ValueError("members with CoActivationMemory cannot be recorded; with LocalAdam and LocalSGD they can")
    elif not isinstance(method, Backprop):
        raise ValueError(f"a step of {type(method).__name__} cannot be recorded; AltMin, Backprop and Ensemble can")
    elif not isinstance(method.optimizer, torch.optim.Adam) and not method.optimizer.defaults.get("fused"):
        raise ValueError(f"{type(method.optimizer).__name__} is recorded if it is fused; give fused=True")


class AltMinLane:
    """`AltMin.step` with weights in flat storage and equal layers together."""

    careful = 1

    def __init__(self, am: AltMin):
        self.am = copy.copy(am)
        self.original = am
        rule = am.weights
        assert isinstance(rule, LocalOptimizer)
        self.rule = rule
        self.store = Storage(am.chain, rule.optimizer)
        if type(am.codes) is GradientCodes and am.codes.lr == "exact" and am.codes.steps == 1 and not am.codes.l1:
            self.am.codes = StackedCodes(am.codes, self.store.runs)
        device = am.theta[0][0].device
        self.mu = torch.tensor(am.penalty.value, dtype=torch.float64, device=device)
        self.fine = torch.ones((), dtype=torch.bool, device=device)
        self.done = torch.zeros((), dtype=torch.int64, device=device)
        self.branches = Branches(device)
        kind = AdamState if isinstance(rule.optimizer, FusedAdam) else SGDState
        self.states: list[Any] = [
            kind(rule.optimizer, options, group, self.store)
            for options, group in zip(rule.optimizer.param_groups, self.store.groups, strict=True)
        ]

    @torch.no_grad()
    def advance(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        found = self.am.attempt(x, y, self.mu, Doubts(wait=False))
        sums, penalty = found.sums(), self.am.penalty
        loss = _judge(self.fine, sums, found.first_code, found.doubtful, len(x))
        self._set_grads(found.problems, sums[:-1])
        self.branches.run([partial(state.step, self.fine) for state in self.states])
        _count(self.fine, [self.done, *(state.steps for state in self.states)])
        self.mu.copy_(_next_mu(self.fine, self.mu, penalty.increment, penalty.maximum))
        return loss

    def _set_grads(self, problems: list[Local], totals: Tensor) -> None:
        """Those of all blocks, side by side."""
        codes, scales = self.am.codes, self.rule.scales(problems, totals, self.mu)
        runs = self.store.runs if isinstance(codes, StackedCodes) else []
        blocks = [l for l in self.rule.blocks if not any(l in run for run in runs)]
        together = [partial(codes.gradients, run, scales) for run in runs] if isinstance(codes, StackedCodes) else []
        alone = [partial(self.rule.grads, l, problems[l], scales[l]) for l in blocks]
        found = self.branches.run([*together, *alone])[len(together) :]
        grads = {
            p: g for l, each in zip(blocks, found, strict=True) for p, g in zip(self.am.theta[l], each, strict=True)
        }
        for group in self.store.groups:
            group.write(grads)

    def tensors(self) -> list[Tensor]:
        flat = [group.flat for group in self.store.groups]
        return [self.mu, self.fine, self.done, *flat, *(t for state in self.states for t in state.tensors)]

    def before(self) -> None:
        self.mu.fill_(self.original.penalty.value)
        self.set_rates()

    def set_rates(self) -> None:
        for state, group, options in zip(self.states, self.store.groups, self.rule.optimizer.param_groups, strict=True):
            if group.params and _displaced(group, self.rule.optimizer.state[group.params[0]], *state.moment):
                raise ValueError(
                    "weights or moments no longer lie where the recorded step writes them: the model was moved or "
                    "copied, recorded again, or its optimizer loaded another state; make a new Recorded(method)"
                )
            if state.numbers_of(options) != state.numbers:
                raise ValueError(
                    f"options of the optimizer other than lr are recorded: {state.numbers}, now "
                    f"{state.numbers_of(options)}; make a new Recorded(method)"
                )
            if options["lr"] != state.rate_now:
                state.rate_now = options["lr"]
                state.rate.fill_(options["lr"])

    def after(self) -> None:
        self.original.penalty.value = float(self.mu)

    def taken(self) -> int | None:
        fine, done = torch.stack([self.fine.long(), self.done]).tolist()
        return None if fine else done

    def forgive(self) -> None:
        self.fine.fill_(True)
        self.done.zero_()


class EnsembleLane:
    """`Ensemble.advance`. If a member was doubtful, the next look takes all back to where they were at the last one.

    mu, rates and who is alive lie on the device already.
    """

    careful = 64

    def __init__(self, ensemble: Ensemble):
        self.ensemble = ensemble
        self.doubted = torch.zeros((), dtype=torch.bool, device=ensemble.alive.device)
        self.kept: list[Tensor] = []
        self.forgive()

    def advance(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        loss = self.ensemble.advance(x, y, **how)
        self.doubted |= self.ensemble.doubtful.any()
        return loss

    def tensors(self) -> list[Tensor]:
        return [*self.ensemble.tensors(), self.doubted]

    def before(self) -> None:
        pass

    def set_rates(self) -> None:
        self.ensemble.demand_views()

    def after(self) -> None:
        pass

    def taken(self) -> int | None:
        if not bool(self.doubted):
            return None
        for t, old in zip(self.ensemble.tensors(), self.kept, strict=True):
            t.copy_(old)
        return 0

    def forgive(self) -> None:
        self.doubted.zero_()
        self.kept = [t.clone() for t in self.ensemble.tensors()]


class Branches:
    """Actions that do not depend on each other, side by side on a GPU; in a recording they stay side by side."""

    def __init__(self, device: torch.device, count: int = 4):
        self.streams = [torch.cuda.Stream(device) for _ in range(count)] if device.type == "cuda" else []

    def run(self, actions: Sequence[Callable[[], Any]]) -> list[Any]:
        if not self.streams or len(actions) < 2:
            return [action() for action in actions]
        main, results = torch.cuda.current_stream(), []
        for action, stream in zip(actions, itertools.cycle(self.streams)):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                results.append(action())
        for stream in self.streams[: len(actions)]:
            main.wait_stream(stream)
        return results


class BackpropLane:
    """`Backprop.step`, its optimizer told that it is being recorded."""

    careful = 1

    def __init__(self, method: Backprop):
        self.method, self.optimizer = method, method.optimizer
        for group in self.optimizer.param_groups:
            device = group["params"][0].device
            if "capturable" in group and device.type == "cuda":
                group["capturable"] = True
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)
            for p in group["params"]:
                if "step" in self.optimizer.state[p]:
                    self.optimizer.state[p]["step"] = self.optimizer.state[p]["step"].to(device)

    def advance(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        return self.method.step(x, y).loss

    def tensors(self) -> list[Tensor]:
        state = [t for p in self.optimizer.state.values() for t in p.values() if isinstance(t, Tensor)]
        return [*self.method.model.parameters(), *self.method.model.buffers(), *state]

    def before(self) -> None:
        pass

    def set_rates(self) -> None:
        pass

    def after(self) -> None:
        pass

    def taken(self) -> int | None:
        return None

    def forgive(self) -> None:
        pass


class AdamState:
    """AdamW over one flat tensor; the optimizer's own state holds views of it."""

    def __init__(self, optimizer: torch.optim.Optimizer, options: dict[str, Any], group: Group, store: Storage):
        self.group, self.numbers = group, self.numbers_of(options)
        self.rate_now = options["lr"]
        self.rate = group.flat.new_tensor(float(options["lr"]))
        self.m, self.v = torch.zeros_like(group.flat), torch.zeros_like(group.flat)
        self.steps = torch.zeros(max(1, len(group.params)), device=group.flat.device)
        for i, p in enumerate(group.params):
            old, views = optimizer.state[p], [store.view(t, group, p) for t in (self.m, self.v)]
            for name, new in (("step", self.steps[i]), ("exp_avg", views[0]), ("exp_avg_sq", views[1])):
                if name in old:
                    new.copy_(old[name])
                old[name] = new
        if len(set(self.steps.tolist())) > 1:
            raise ValueError("weights of one optimizer group have taken different numbers of steps; not recorded")
        self.tensors, self.moment = [self.m, self.v, self.steps], ("exp_avg", self.m)

    @staticmethod
    def numbers_of(options: dict[str, Any]) -> tuple[float, ...]:
        return *options["betas"], options["eps"], options["weight_decay"]

    def step(self, ok: Tensor) -> None:
        if len(self.group.flat):
            _adamw_(ok, self.group.flat, self.group.grads, self.m, self.v, self.steps, self.rate, *self.numbers)


class SGDState:
    """Gradient descent with momentum over one flat tensor."""

    def __init__(self, optimizer: torch.optim.Optimizer, options: dict[str, Any], group: Group, store: Storage):
        self.group, self.numbers = group, self.numbers_of(options)
        self.rate_now = options["lr"]
        self.rate = group.flat.new_tensor(float(options["lr"]))
        self.velocity = torch.zeros_like(group.flat)
        if options["momentum"]:
            for p in group.params:
                view = store.view(self.velocity, group, p)
                if optimizer.state[p].get("momentum_buffer") is not None:
                    view.copy_(optimizer.state[p]["momentum_buffer"])
                optimizer.state[p]["momentum_buffer"] = view
        self.steps = torch.zeros(1, device=group.flat.device)
        self.tensors, self.moment = [self.velocity], ("momentum_buffer", self.velocity)

    @staticmethod
    def numbers_of(options: dict[str, Any]) -> tuple[float, ...]:
        return options["momentum"], options["weight_decay"]

    def step(self, ok: Tensor) -> None:
        if len(self.group.flat):
            _sgd_(ok, self.group.flat, self.group.grads, self.velocity, self.rate, *self.numbers)


def _displaced(group: Group, state: Mapping[str, Any], name: str, moment: Tensor) -> bool:
    """Whether a group's first parameter, or its moment, is elsewhere than at the start of the flat ones."""
    kept = state.get(name)
    return group.params[0].data_ptr() != group.flat.data_ptr() or (
        kept is not None and kept.data_ptr() != moment.data_ptr()
    )


@fusible_alone
def _adamw_(ok: Tensor, p: Tensor, g: Tensor, m: Tensor, v: Tensor, steps: Tensor, lr: Tensor, *options: float) -> None:
    new = adamw(p, g, m, v, steps[0].to(p.dtype) + 1, lr, *options)
    for old, value in zip((p, m, v), new, strict=True):
        old.copy_(torch.where(ok, value, old))


@fusible_alone
def _sgd_(ok: Tensor, p: Tensor, g: Tensor, velocity: Tensor, lr: Tensor, *options: float) -> None:
    for old, value in zip((p, velocity), sgd(p, g, velocity, lr, *options), strict=True):
        old.copy_(torch.where(ok, value, old))


@fusible_alone
def _judge(fine: Tensor, sums: Tensor, first_code: Tensor, doubtful: Tensor | None, samples: int) -> Tensor:
    """Notes whether all has been well so far; the mean loss."""
    ok = fine & (sums.sum() + 0 * first_code).isfinite()
    fine.copy_(ok if doubtful is None else ok & ~doubtful.any())
    return sums[-1] / samples


@fusible_alone
def _count(ok: Tensor, counts: list[Tensor]) -> None:
    for count in counts:
        count.add_(ok)


@fusible_alone
def _next_mu(ok: Tensor, mu: Tensor, increment: float, maximum: float | None) -> Tensor:
    new = mu + increment
    return torch.where(ok, new if maximum is None else new.clamp_max(maximum), mu)


def _check(am: AltMin) -> None:
    rule = am.weights
    if not isinstance(rule, LocalOptimizer) or not isinstance(rule.optimizer, FusedAdam | torch.optim.SGD):
        raise ValueError(f"{type(rule).__name__} cannot be recorded: LocalAdam and LocalSGD can")
    if rule.steps > 1 or rule.l1:
        raise ValueError(
            f"weights with {rule.steps} steps and l1={rule.l1} cannot be recorded; one step without l1 can"
        )
    if not isinstance(am.codes, GradientCodes):
        raise ValueError(f"{type(am.codes).__name__} asks the processor at every code, so it cannot be recorded")
    if am.codes.tolerance:
        raise ValueError("codes with a tolerance ask the processor when to stop, so they cannot be recorded")
    if any(block.couples for block in am.chain):
        raise ValueError("batch norm keeps statistics that a step not taken would spoil; it cannot be recorded")
    if isinstance(am.loss, AnyLoss):
        raise ValueError("a loss of one's own is checked after every step, so it cannot be recorded")
