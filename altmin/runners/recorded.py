"""A step recorded once and replayed: on a GPU as a CUDA graph, which no longer waits for the processor to start its
kernels, on a CPU as compiled code."""

import warnings
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import own_call
from altmin.common.errors import Diverged
from altmin.common.interrupts import InterruptsDeferred
from altmin.core.chain import is_setting
from altmin.core.trainer import AltMin
from altmin.graph.piece import Piece
from altmin.methods.wrapper import Wrapper
from altmin.runners.capture import captured, demand_same, step_of
from altmin.runners.cuda_graph import CudaGraph
from altmin.runners.ensemble import Ensemble

CHECK_EVERY = 256
"""Number of replays after which `Recorded` checks that all were finite."""


class Recorded(Wrapper):
    """A method whose step is recorded at the first batch and then replayed. It is a `Method` again and gives the
    numbers of the method's own step.

    fuse: whether the step is compiled, where torch can, which takes seconds, for deep nets a minute. On a GPU the step,
    compiled or not, is a CUDA graph besides; on a CPU it is compiled or, with fuse=False, gains nothing.
    rows: the number of samples of the batches that are recorded, None for that of the first one. With it a run that
    goes on from inside an epoch replays the same steps as one that was never stopped.
    quiet: whether what cannot be recorded takes the method's own step without a word, and what has changed is recorded
    again; otherwise the former is a ValueError when the first batch comes, and the latter when the next one does.

    Batches of another shape (the last of an epoch, often), with sample weights or several inputs, and those that come
    while the model is in another mode (`train`, `eval`) take the method's own step, with one warning. A step of
    `AltMin` whose loss or objective is not finite is not taken, nor are those after it until the next check, which
    raises `Diverged`; there is one every `CHECK_EVERY` steps and whenever model or state are read. An interrupt
    (Ctrl-C) leaves a step taken or not, but for the first, which is recorded.
    """

    def __init__(self, method: Any, fuse: bool = True, rows: int | None = None, quiet: bool = False):
        step_of(method)
        super().__init__(method)
        self.fuse, self.rows, self.quiet, self.possible = fuse, rows, quiet, True
        self.programs: dict[int, Any] = {}
        """Functions that take the next step, by its kind."""
        self.others = self.unseen = 0
        """Number of batches that took the method's own step, and of replays since the last check."""
        self.text, self.begins = self._text(), False

    def record(self, x: Tensor, y: Tensor, **how: Any) -> None:
        """Record the step of batches like this one, in the present modes; nothing else changes. ValueError if torch
        cannot."""
        device = x.device
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            raise ValueError(f"a step is recorded on the current device; call torch.cuda.set_device({device.index})")
        self.x, self.y, self.how = x.clone(), y.clone(), how
        self.modules = list(self.method.model.modules())
        self.modes = [m.training for m in self.modules]
        self.attributes = [
            (vars(m), name) for m in self.modules for name, value in vars(m).items() if is_setting(name, value)
        ]
        self.captured = captured(self.method, self.fuse)
        actions: dict[int, Any] = {kind: partial(self._run, kind) for kind in self.captured.kinds}
        if device.type == "cuda":
            actions = {kind: CudaGraph(action, self.captured.tensors) for kind, action in actions.items()}
        self.programs, self.settings, self.replays = actions, self._settings(), False

    def _run(self, kind: int) -> Tensor:
        values: Tensor = self.captured.run(self.x, self.y, kind, **self.how)
        self.settings = self._settings()  # a step may count its calls, or keep something of them
        return values

    def _settings(self) -> list[Any]:
        """Return the settings of the modules (the p of a dropout), which are part of the recording."""
        return [attributes.get(name) for attributes, name in self.attributes]

    def step(self, x: Any, y: Tensor, **how: Any) -> Any:
        """Take one mini-batch. how: what the method's own step takes besides, the same for all that are replayed."""
        if isinstance(x, Tensor) and how.get("sample_weight") is None and self._is_recorded(x, y, how):
            self.x, self.y = _placed(self.x, x), _placed(self.y, y)
            values = self._replayed()
            if values is not None:
                if self.unseen >= CHECK_EVERY:
                    self.synchronize()
                return self.captured.metrics(values)
        if not self.others and not self.quiet:
            warnings.warn(
                "a batch takes the ordinary step: not of the shape and in the modes (train, eval) that were recorded, "
                "or with several inputs or sample weights",
                stacklevel=2,
            )
        self.others += 1
        self.synchronize()
        return self.method.step(x, y, **how)

    def _replayed(self) -> Tensor | None:
        """Return the values of the next step. ValueError if it is no function of tensors; if quiet, None,
        and nothing is recorded any more."""
        counter = self.captured.counter
        try:
            with InterruptsDeferred() if self.replays else nullcontext():  # compiling takes long
                values: Tensor = self.programs[self.captured.begin_step()]().clone()
                self.unseen, self.replays = self.unseen + 1, True
            return values
        except ValueError:
            if counter is not None:
                counter.count -= 1
            if not self.quiet:
                raise
            self.synchronize()
            self.programs, self.possible = {}, False
            return None

    def _is_recorded(self, x: Tensor, y: Tensor, how: dict[str, Any]) -> bool:
        """Return whether the step of such a batch is recorded, which it is now if it is the first one."""
        if self.begins:  # an epoch: callbacks may have changed the model since the last one
            self.begins = False
            if (text := self._text()) != self.text and self._changed("model or loss have other options now"):
                self.text = text
        if not self.programs and self.possible and self.rows in (None, x.shape[1 if how.get("each") else 0]):
            try:
                self.record(x, y, **how)
            except (ValueError, torch.OutOfMemoryError):
                self.possible = False
                if not self.quiet:
                    raise
        if not self.programs or how != self.how or [m.training for m in self.modules] != self.modes:
            return False
        if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in ((x, self.x), (y, self.y))):
            return False
        try:
            demand_same(self.settings, self._settings())
            self.captured.push()
        except ValueError as error:
            return not self._changed(str(error))
        return True

    def _changed(self, what: str) -> bool:
        """Record anew at the next batch; ValueError unless quiet."""
        if not self.quiet:
            raise ValueError(f"{what}; make a new Recorded(method)")
        self.synchronize()
        self.programs = {}
        return True

    def _text(self) -> str:
        return "\n".join(f"{one.model!r} {one.loss!r}" for one in getattr(self.method, "methods", [self.method]))

    def _current(self) -> Any:
        """Return the method, after `synchronize`: its model, its state, and all else (`penalty`, what an ensemble
        has)."""
        self.synchronize()
        return self.method

    def __len__(self) -> int:
        return len(self.method)

    def __bool__(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Wait for the device and bring the method up to date. `Diverged` if a step since the last check was not
        finite; the weights are those from before it."""
        if not self.unseen:
            return
        steps, self.unseen = self.unseen, 0
        accepted = self.captured.pull()
        if accepted is not None:
            if self.captured.counter is not None:
                self.captured.counter.count -= steps - accepted
            raise Diverged(f"the objective of step {accepted + 1} of the last {steps} (from it on none was taken)")

    def settle(self) -> None:
        """Synchronize at the end of a run, whatever ended it, without raising `Diverged`."""
        with suppress(Diverged):
            self.synchronize()

    def end_epoch(self) -> None:
        super().end_epoch()
        self.begins = True

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the method's state; the next step is recorded again, as an optimizer's state may lie elsewhere then."""
        try:
            super().load_state_dict(state)
        finally:
            self.programs = {}


class CompiledSteps(Recorded):
    """The steps of an `AltMin` with compile=True: `Recorded`, where each is checked at once. A step that was refused,
    and one that torch cannot compile for a CPU, is taken by the trainer's own."""

    def __init__(self, am: AltMin):
        super().__init__(am, quiet=True)

    def step(self, x: Any, y: Tensor, **how: Any) -> Any:
        metrics = super().step(x, y, **how)
        if self.unseen and not self.captured.is_accepted():
            self.settle()
            return self.method.step(x, y, **how)  # its error names the place
        if self.programs and not self.x.is_cuda and getattr(self.captured.compiled.get(0), "works", False) is False:
            self.synchronize()
            self.programs, self.possible = {}, False
        return metrics


AltMin.compiler = CompiledSteps


def _placed(there: Tensor, t: Tensor) -> Tensor:
    """Return a batch where the step reads it: on a GPU in memory of its own, on a CPU anywhere, in the same layout."""
    if there.is_cuda:
        return there.copy_(t, non_blocking=True)
    return t if t.device == there.device and t.stride() == there.stride() else torch.empty_like(there).copy_(t)


def recorded(method: Any, record: bool | None, rows: int | None = None) -> Any:
    """Return the method, or an ensemble, with its steps recorded. record: True for `Recorded`, False for not at all,
    None where that is known to change nothing but the time: on a GPU, where all that a step runs is of torch or of
    altmin, without hooks. Code of someone else may depend on what is not a tensor, and a replayed step would not see it
    change; of a model that `AltMin` has traced only the parts of the graph are run. rows: as in `Recorded`."""
    if record or record is False:
        return Recorded(method) if record else method
    first = next(iter(method.model.parameters()), None)
    if first is None or not first.is_cuda or not runs_known_code(method):
        return method
    return Recorded(method, False, rows, quiet=True)


def runs_known_code(method: Any) -> bool:
    """Return whether the step of a method, or an ensemble, can be recorded and runs code of torch or altmin alone."""
    one: Any = method.methods[0] if isinstance(method, Ensemble) else method
    try:
        step_of(method)
    except ValueError:
        return False
    run = [m.module for block in one.chain for m in block.maps] if isinstance(one, AltMin) else [one.model]
    modules = [part for module in run for part in module.modules()]
    called = [node.target for part in modules if isinstance(part, Piece) for node in part.graph.nodes]
    loss = getattr(one.loss, "function", one.loss)
    return all(map(_is_known, (*modules, *called, loss))) and not any(map(own_call, modules))


def _is_known(part: Any) -> bool:
    """Return whether a module, function or name of a method of tensors is torch's, Python's or altmin's own."""
    place = getattr(part, "__module__", None) or "torch"
    return isinstance(part, str) or place.partition(".")[0] in ("torch", "altmin", "_operator", "math", "builtins")
