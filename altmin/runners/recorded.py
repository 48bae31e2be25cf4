"""A step captured once and replayed: on a GPU as a CUDA graph, which no longer waits for the processor to start its
kernels, on a CPU as compiled code."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import own_call
from altmin.calculus.context import LOCAL
from altmin.common.errors import Diverged
from altmin.common.inputs import Inputs, as_inputs
from altmin.core.trainer import AltMin
from altmin.graph.piece import Piece
from altmin.methods.protocol import demand_method
from altmin.methods.wrapper import Wrapper
from altmin.runners.capture import WHOLE, CapturedStep, can_capture, captured, check_capturable
from altmin.runners.compiled import check as check_compiler
from altmin.runners.ensemble import Ensemble
from altmin.runners.programs import Programs, can_fuse, demand_cuda, is_on_gpu

CHECK_EVERY = 256
"""The number of replays after which `Recorded` checks that all were finite."""

LONG = 30_000
"""Steps from which a run that records by itself is compiled: for a small net this saves about 0.1 ms per step and block
and takes about three seconds per block."""


def demand_recordable(method: Any, fuse: bool | None) -> None:
    """ValueError unless a method's steps can be recorded where its model is: on the current CUDA device, or on a CPU
    that torch can compile for."""
    device = next(iter(method.model.parameters())).device
    if device.type != "cpu":
        demand_cuda(method.model)
        return
    why = ""
    if not isinstance(method, AltMin | Ensemble):
        why = f"steps of AltMin and of ensembles are recorded there, not those of {type(method).__name__}"
    elif isinstance(method, AltMin) and len(method.chain) > WHOLE:
        why = f"a step is compiled there, for at most {WHOLE} blocks, and the model has {len(method.chain)}"
    elif fuse is False:
        why = "a step is recorded there by compiling it, which fuse=False forbids"
    if why:
        raise ValueError(f"the model is on a CPU; {why}; use the method as it is, or move the model with .to('cuda')")
    check_compiler(device)


class Changed(ValueError):
    """The method is no longer the one that was captured: weights were frozen or replaced, or an option has changed."""


class Recorded(Wrapper):
    """A method whose step is captured and then replayed: `Recorded(method)` captures the first batch that comes,
    `Recorded(method, x, y)` one given now. It is a `Method` again and gives the numbers of the method's own step.

    fuse: whether the step is compiled, which takes seconds, for deep nets a minute; None for wherever torch can. On a
    CPU, where steps of `AltMin` and of ensembles are recorded, that is all, and it needs a C++ compiler.

    Batches of another shape (the last of an epoch, often), and those that come while the model is in another mode
    (`train`, `eval`), take the method's own step, with one warning. A step of
    `AltMin` whose loss or objective is not finite is not taken, nor are those after it until the next check, which
    raises `Diverged`; there is one every `CHECK_EVERY` steps and whenever model or state are read.
    """

    programs: Programs | None = None
    warns = True

    def __init__(self, method: Any, x: Tensor | None = None, y: Tensor | None = None, fuse: bool | None = None):
        demand_method("Recorded", method)
        demand_recordable(method, fuse)
        check_capturable(method)
        super().__init__(method)
        self.fuse = fuse
        self.how: dict[str, Any] = {}
        self.others = 0
        """The number of batches of another shape or in another mode so far."""
        if x is not None and y is not None:
            self._capture(x, y, {})

    def _capture(self, x: Tensor, y: Tensor, how: dict[str, Any]) -> None:
        self.x, self.y, self.how, self.unseen = x.clone(), y.clone(), how, 0
        self.modules = list(self.method.model.modules())
        self.modes = [m.training for m in self.modules]
        context = how.get("context", LOCAL)
        step: CapturedStep = captured(self.method, can_fuse(x.device) if self.fuse is None else self.fuse, context)
        self.captured = step
        self.programs = Programs(step, lambda kind: step.run(self.x, self.y, kind, **how), step.tensors, x.device)

    def _current(self) -> Any:
        """The method, after `synchronize`: its model, its state, and all else (`penalty`, and what an ensemble has)."""
        self.synchronize()
        return self.method

    def __len__(self) -> int:
        return len(self.method)

    def __bool__(self) -> bool:
        return True

    def step(self, x: Tensor, y: Tensor, **how: Any) -> Any:
        """One mini-batch; `how` is what the method's own step takes besides, the same for all that are replayed."""
        if isinstance(as_inputs(x), Inputs):
            raise ValueError("a recorded step takes one input; use the method itself, without Recorded(...)")
        if how.get("sample_weight") is not None:
            raise ValueError("a recorded step takes no sample weights; use the method itself, without Recorded(...)")
        if self.programs is None:
            self._capture(x, y, how)
        assert self.programs is not None
        kinds = ((t.shape, t.dtype) for t in (x, y, self.x, self.y))
        same = how == self.how and (next(kinds), next(kinds)) == (next(kinds), next(kinds))
        if not same or [m.training for m in self.modules] != self.modes:
            return self._ordinary(x, y, how)
        self._push()
        self.x, self.y = self._given(self.x, x), self._given(self.y, y)
        values = self.programs.replay().clone()
        self.unseen += 1
        if self.unseen >= CHECK_EVERY:
            self.synchronize()
        return self.captured.metrics(values)

    @staticmethod
    def _given(held: Tensor, t: Tensor) -> Tensor:
        """A batch where the step reads it: on a GPU in memory of its own, on a CPU anywhere, in the same layout."""
        if held.is_cuda:
            return held.copy_(t, non_blocking=True)
        return t if t.device == held.device and t.stride() == held.stride() else torch.empty_like(held).copy_(t)

    def _push(self) -> None:
        """`CapturedStep.push`; `Changed` where that refuses."""
        try:
            self.captured.push()
        except ValueError as error:
            raise Changed(str(error)) from None

    def _ordinary(self, x: Tensor, y: Tensor, how: Any) -> Any:
        if not self.others and self.warns:
            now = [m.training for m in self.modules]
            mode = "" if now == self.modes else ", in another mode than the model was captured in,"
            warnings.warn(
                f"a batch of {tuple(x.shape)}{mode} takes the ordinary step; captured are those of "
                f"{tuple(self.x.shape)}",
                stacklevel=3,
            )
        self.others += 1
        self.synchronize()
        return self.method.step(x, y, **how)

    def synchronize(self) -> None:
        """Waits for the device and brings the method up to date. `Diverged` if a step since the last check was not
        finite; the weights are those from before it."""
        if self.programs is None or not self.unseen:
            return
        steps, self.unseen = self.unseen, 0
        taken = self.captured.pull()
        if taken is not None:
            raise Diverged(f"the objective of step {taken + 1} of the last {steps} (from it on none was taken)")

    def settle(self) -> None:
        """`synchronize` at the end of a run, whatever ended it."""
        with suppress(Diverged):
            self.synchronize()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the method's state; the next step is captured again, as an optimizer's state may lie elsewhere then."""
        try:
            super().load_state_dict(state)
        finally:
            self.programs = None


class RecordedIfPossible(Recorded):
    """`Recorded` of a step of which it is not known whether it can be captured. If the
    capture fails, all batches take the method's own step; so do, without a warning, batches of other shapes and those
    with sample weights. After a change of what was captured (`Changed`), or of the `repr` of model or loss since the
    epoch before, the step is captured again.

    rows: the number of samples of the batches that are captured, None for that of the first one. With it a run that
    goes on from inside an epoch replays the same steps as one that was never stopped. fuse: as in `Recorded`.
    """

    warns = False

    def __init__(self, method: Any, rows: int | None = None, fuse: bool = False):
        super().__init__(method, fuse=fuse)
        self.rows, self.possible = rows, True
        self.text, self.begins = self._text(), False

    def step(self, x: Tensor, y: Tensor, **how: Any) -> Any:
        if isinstance(as_inputs(x), Inputs):
            return self.method.step(x, y, **how)
        if self.begins:  # an epoch: callbacks may have changed the model since the last one
            self._compare_text()
        rows = x.shape[1 if how.get("each") else 0]
        weighted = how.get("sample_weight") is not None
        if self.possible and self.programs is None and not weighted and self.rows in (None, rows):
            try:
                self._capture(x, y, how)
            except (ValueError, torch.OutOfMemoryError):
                self.possible = False
        if self.programs is not None and not weighted:
            with suppress(Changed):
                return super().step(x, y, **how)
            self.synchronize()
            self.programs = None
        self.synchronize()
        return self.method.step(x, y, **how)

    def end_epoch(self) -> None:
        super().end_epoch()
        self.begins = True

    def _compare_text(self) -> None:
        self.begins = False
        if (text := self._text()) != self.text:
            self.synchronize()
            self.programs, self.text = None, text

    def _text(self) -> str:
        return "\n".join(f"{each.model!r} {each.loss!r}" for each in getattr(self.method, "methods", [self.method]))


def recorded(
    method: Any, record: bool | None, rows: int | None = None, steps: Callable[[], int | None] = lambda: None
) -> Any:
    """The method, or an ensemble, with its steps recorded. record: True for `Recorded`, False for not at all, None for
    `RecordedIfPossible` where that is known to change nothing: on a GPU, where all that a step runs is of torch or of
    altmin, without hooks. Code of someone else may depend on what is not a tensor, and a replayed step would not see it
    change; of a model that `AltMin` has traced only the parts of the graph are run. rows, steps(): the samples of a
    batch and the batches of the run, None where they are not known; a long run is compiled too, since that takes less
    time than it saves."""
    if record:
        return Recorded(method)
    if record is False or not _is_safe(method):
        return method
    return RecordedIfPossible(method, rows, fuse=(steps() or 0) >= LONG and can_fuse(torch.device("cuda")))


def _is_safe(method: Any) -> bool:
    one: Any = method.methods[0] if isinstance(method, Ensemble) else method
    if not is_on_gpu(one.model) or not can_capture(method) or not hasattr(one, "loss"):
        return False
    run = [m.module for block in one.chain for m in block.maps] if isinstance(one, AltMin) else [one.model]
    modules = [part for module in run for part in module.modules()]
    called = [step.target for part in modules if isinstance(part, Piece) for step in part.steps]
    loss = getattr(one.loss, "function", one.loss)
    return all(map(_is_known, (*modules, *called, loss))) and not any(map(own_call, modules))


def _is_known(part: Any) -> bool:
    """Whether a module, function or name of a method of tensors is torch's, Python's or altmin's own."""
    place = getattr(part, "__module__", None) or "torch"
    return isinstance(part, str) or place.partition(".")[0] in ("torch", "altmin", "_operator", "math", "builtins")
