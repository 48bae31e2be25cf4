"""What a captured step is: a mini-batch as a function of tensors that stay on the device, and its CUDA graph.

Nothing of a captured step is read back. Learning rates, mu and the verdict are tensors; a step that is not finite, and
every one after it, leaves weights, moments, mu and statistics as they are until somebody asks (`CapturedStep.pull`).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from altmin.calculus import Map
from altmin.calculus.numbers import tensors
from altmin.common.errors import Diverged
from altmin.common.fusing import can_fuse, fusible_alone, fusing, fusing_now
from altmin.core.codes.above import Residual
from altmin.core.codes.gradient import GradientCodes
from altmin.core.penalty import grown
from altmin.core.step import Moved, move_codes, verdict
from altmin.core.trainer import AltMin, Metrics
from altmin.methods.backprop import Backprop, LossOnly
from altmin.runners.ensemble import Ensemble
from altmin.runners.optimizer_on_device import OptimizerOnDevice, all_finite
from altmin.runners.stacked import StackedCodes, stack_weights

WHOLE = 64
"""Blocks up to which a step is compiled as a whole; a longer one would take minutes, and is compiled in its pieces."""
WITH_ADAM = 32
"""Blocks up to which Adam's step is part of that."""


class CapturedStep:
    """One method's step on the device alone. Here that of a method which looks at nothing it computes."""

    def run(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        """One mini-batch; what `metrics` needs of it. how: what the method's own step takes besides."""
        raise NotImplementedError

    def metrics(self, values: Tensor) -> Any:
        """What the method's own step returns, as far as it is known."""
        return LossOnly(values)

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        raise NotImplementedError

    def push(self) -> None:
        """Brings what has changed on the processor (learning rates, mu) to the device. ValueError if something has that
        is part of the capture."""

    def pull(self) -> int | None:
        """Waits for the device and brings back what it has changed. None if all steps since the last time were taken,
        else how many were before one that was not finite; steps are taken again from then on."""
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


@singledispatch
def captured(method: Any) -> CapturedStep:
    """The method's step as it is captured."""
    raise ValueError(
        f"this step cannot be captured: nobody has said how one of {type(method).__name__} runs on tensors"
    )


class CapturableRule(Protocol):
    """What a weight rule needs besides for its update to be captured.

    takes_gradients: whether `propose` needs of every block its gradients and nothing else. adam_alone: whether an
    update is one step of Adam. `allocate` makes everything that an update changes besides what the optimizer has;
    `tensors` are these. `propose` computes an update and changes nothing: what `take` needs, and whether it is finite.
    `take` makes it where ok; the optimizer has been told by itself.
    """

    @property
    def takes_gradients(self) -> bool: ...
    @property
    def adam_alone(self) -> bool: ...
    def allocate(self) -> None: ...
    def tensors(self) -> list[Tensor]: ...
    def propose(self, found: Sequence[Any]) -> tuple[Any, Any]: ...
    def take(self, proposed: Any, ok: Tensor | None = None) -> None: ...


@captured.register(AltMin)
class AltMinStep(CapturedStep):
    """`AltMin.step`, with equal layers together."""

    def __init__(self, am: AltMin):
        self.am, self.optimizer = am, OptimizerOnDevice(am.optimizer)
        self.weights = cast(CapturableRule, am.weights)
        self.weights.allocate()
        first = am.theta[0][0]
        self.dtype, self.sizes = first.dtype, list[int]()
        self.codes: Any = am.codes
        if type(am.codes) is GradientCodes and am.codes.one_exact_step:
            self.codes = StackedCodes(am.codes, stack_weights(am.chain), gradients=self.weights.takes_gradients)
        self.places = self._places()
        self.compiled: Any = None
        self.known = am.penalty.value
        self.state = torch.tensor([1.0, 0.0, self.known], dtype=torch.float64, device=first.device)
        """Whether all steps have been finite (1, else 0), how many were taken, and mu."""

    @torch.no_grad()
    def run(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        am = self.am
        am.optimizer.zero_grad()  # those of the last step would be held until the new ones are known
        with tensors():
            values, state, found_inf, self.sizes, proposed, statistics = self._computed(x, y)
            self.state.copy_(state)
            if proposed is not None:
                with self.optimizer.lent(found_inf):
                    self.weights.take(proposed, found_inf == 0)
        for m, kept in statistics:
            _commit(m, kept, found_inf == 0)
        return values

    def _compute(self, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """The whole step up to the weights; nothing changes."""
        am, mu = self.am, self.state[2].to(self.dtype)
        moved = move_codes(am.chain, am.theta, self.codes, am.loss, x, y, mu, self._measure)
        proposed, finite = self.weights.propose([each for _, each in moved.found])
        numbers = moved._replace(found=[], statistics=[])
        settled = _settle(numbers, finite, self.state, am.penalty.increment, am.penalty.maximum)
        return *settled, [size for size, _ in moved.found[:-1]], proposed, moved.statistics

    def _compute_all(self, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """`_compute` and, if the weights are Adam's and few enough, their update with it; then nothing is left to be
        done with what was proposed."""
        values, state, found_inf, sizes, proposed, statistics = self._compute(x, y)
        if self.weights.adam_alone and len(self.am.chain) <= WITH_ADAM:
            pairs = (zip(own, each, strict=True) for own, each in zip(self.am.theta, proposed, strict=True))
            self.optimizer.step_adam(dict(itertools.chain(*pairs)), found_inf)
            proposed = None
        return values, state, found_inf, sizes, proposed, statistics

    def _computed(self, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """`_compute`; within `fusing()` compiled as a whole from the second time on, when losses and optimizers have
        what they keep, or, where torch cannot do that, in its pieces."""
        if not fusing_now() or len(self.am.chain) > WHOLE:
            return self._compute(x, y)
        if self.compiled is None:
            self.compiled = torch.compile(self._compute_all, fullgraph=True, dynamic=False)
            with fusing(False):
                return self._compute(x, y)
        from torch._dynamo.exc import TorchDynamoException  # not before something is compiled: it takes seconds

        try:
            found: tuple[Any, ...] = self.compiled(x, y)
        except TorchDynamoException:
            self.compiled = self._compute
            found = self._compute(x, y)
        return found

    def _measure(self, l: int, residual: Residual) -> tuple[int, Any]:
        """A block's entries of the code, and what the weight rule needs of it."""
        grads = self.codes.grads.pop(l, None) if isinstance(self.codes, StackedCodes) else None
        found = self.am.weights.measure(l, self.am.theta[l], residual) if grads is None else grads
        return residual.delta.numel(), found

    def metrics(self, values: Tensor) -> Any:
        return LaterMetrics(values, self.sizes, self.dtype)

    def tensors(self) -> list[Tensor]:
        return [self.state, *self.am.model.buffers(), *self.optimizer.tensors(), *self.weights.tensors()]

    def push(self) -> None:
        self.am.chain.demand_unchanged()
        self.optimizer.push()
        if self._places() != self.places:
            raise ValueError(
                "the tensors of the weight rule are no longer those of the captured step: they were moved, loaded, "
                "frozen or freed; make a new Recorded(method)"
            )
        if self.am.penalty.value != self.known:
            self.known = self.am.penalty.value
            self.state[2].fill_(self.known)

    def pull(self) -> int | None:
        ok, taken, mu = self.state.tolist()
        self.am.penalty.value = self.known = mu
        self.state[0].fill_(1.0)
        self.state[1].zero_()
        if not all_finite(self.optimizer.tensors()):
            raise Diverged("a weight or one of the optimizer's moments", "lower the learning rate")
        return None if ok else int(taken)

    def _places(self) -> list[tuple[int, bool]]:
        """Where the tensors of the weight rule lie, and whether they are trained."""
        return [(t.data_ptr(), t.requires_grad) for t in self.weights.tensors()]


class LaterMetrics:
    """The `Metrics` of a captured step. `loss` stays on the device; all else is read from it when it is asked for."""

    def __init__(self, values: Tensor, sizes: list[int], dtype: torch.dtype):
        self._values, self._sizes, self._dtype = values, sizes, dtype

    @property
    def loss(self) -> Tensor:
        return self._values[0].to(self._dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        _, penalty, objective, *rest = self._values.tolist()
        hidden = len(self._sizes)
        return getattr(Metrics(self.loss, penalty, objective, rest[:hidden], rest[hidden:], self._sizes), name)


@captured.register(Backprop)
class BackpropStep(CapturedStep):
    """`Backprop.step`."""

    def __init__(self, method: Backprop):
        self.method, self.optimizer = method, OptimizerOnDevice(method.optimizer)

    def run(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        with self.optimizer.lent(None):
            return self.method.step(x, y).loss

    def tensors(self) -> list[Tensor]:
        return [*self.method.model.buffers(), *self.optimizer.tensors()]

    def push(self) -> None:
        self.optimizer.push()


@captured.register(Ensemble)
class EnsembleStep(CapturedStep):
    """`Ensemble.advance`: mu, rates and who takes part lie on the device already, and a member that diverges takes no
    further part by itself."""

    def __init__(self, ensemble: Ensemble):
        self.ensemble = ensemble

    def run(self, x: Tensor, y: Tensor, **how: Any) -> Tensor:
        return self.ensemble.advance(x, y, **how)

    def tensors(self) -> list[Tensor]:
        return self.ensemble.tensors()

    def push(self) -> None:
        self.ensemble.demand_views()


@fusible_alone
def _settle(
    moved: Moved, finite: Any, state: Tensor, increment: float, maximum: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The verdict on a step, and what follows from it. finite: whether what the weight rule proposes is.

    Returns loss, mu, objective, costs and squared movements of the hidden blocks in one vector; the next state (see
    `AltMinStep.state`), in which mu grows with every step that is taken; and found_inf as torch's optimizers have it, 1
    if nothing may change, else 0.
    """
    before, taken, mu = state.unbind()
    numbers = (moved.loss, mu, moved.objective, *moved.costs[:-1], *moved.moved[:-1])
    values = torch.stack([torch.as_tensor(n, dtype=torch.float64, device=mu.device) for n in numbers])
    ok = (before > 0) & verdict(moved) & finite
    new = torch.stack([ok.double(), taken + ok.double(), torch.where(ok, grown(mu, increment, 1.0, maximum), mu)])
    return values, new, 1.0 - ok.float()


def _commit(m: Map, kept: Any, ok: Tensor) -> None:
    """`Map.commit` where ok; else the statistics stay as they are."""
    before = [b.clone() for b in m.module.buffers()]
    m.commit(kept)
    for b, old in zip(m.module.buffers(), before, strict=True):
        b.copy_(torch.where(ok, b, old))


class Program:
    """An action captured as a CUDA graph. Before, it runs a few times, so that kernels are compiled and libraries are
    ready; then `state()`, everything that it changes, is put back as it was."""

    def __init__(self, action: Callable[[], Tensor], state: Callable[[], list[Tensor]], fuse: bool | None = None):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with fusing(can_fuse() if fuse is None else fuse), _restored(state):
            with torch.cuda.stream(stream):
                for _ in range(3):
                    action()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(self.graph, stream=stream):
                    self.result = action()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise ValueError(f"this step cannot be captured: {str(error).splitlines()[0]}") from error
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> Tensor:
        """Does what was captured; its result, which the next replay overwrites."""
        self.graph.replay()
        return self.result


@contextmanager
def _restored(state: Callable[[], list[Tensor]]) -> Iterator[None]:
    """Puts back what tensors held; those that came up meanwhile (an optimizer's first state) become zeros."""
    kept = {id(t): t.detach().clone() for t in state()}
    try:
        yield
    finally:
        with torch.no_grad():
            for t in state():
                old = kept.get(id(t))
                t.zero_() if old is None else t.copy_(old)


def demand_cuda(model: nn.Module) -> None:
    """ValueError unless the model is on a CUDA device."""
    device = next(model.parameters()).device
    if device.type != "cuda":
        raise ValueError(f"a step is captured on a CUDA device, the model is on {device}; move it with .to('cuda')")
