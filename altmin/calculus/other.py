"""Modules without a closed form here."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from altmin.calculus.base import Map, Params, divisor, shifted
from altmin.calculus.numbers import Number, eager, inner, select

_passes = threading.RLock()


def _alone() -> AbstractContextManager[Any]:
    """One thread at a time, since a pass changes settings of torch that all threads see: which kernels of attention it
    may choose, and the state of the random numbers."""
    return nullcontext() if torch.compiler.is_compiling() else _passes


@dataclass(frozen=True)
class Pass:
    """What a pass of a module leaves behind. buffers: as it left them. In an eager step also graph: its input, its
    parameters and its output with autograd's graph of this one module, which serves `vjp` and `grads` without another
    pass; and rng: the state of the random numbers that it began with, None if it drew none."""

    buffers: dict[str, Tensor]
    graph: tuple[Tensor, list[Tensor], Tensor] | None = None
    rng: Tensor | None = None


class Point(NamedTuple):
    """A module's input and output, without graphs, and the pass between them."""

    x: Tensor
    y: Tensor
    by: Pass


class AnyModule(Map):
    """Everything else, through autograd on this one module. Its quotient is that of two outputs where they differ by
    clearly more than their rounding, else the jvp. In an eager step all operations at a point, and at those it moves
    to, see the random numbers of its first pass; elsewhere a module that draws some is refused with a ValueError."""

    takes_integers = True
    only_once = False
    """Whether a kernel of the module has turned out to have no second derivative."""

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.module.modules())

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Point]:
        return self._pass(p, x, None)

    def vjp(self, p: Params, saved: Point, v: Tensor) -> Tensor:
        if saved.by.graph is None:
            return torch.func.vjp(lambda x: self._call(p, x)[0], saved.x)[1](v)[0]
        x, _, y = saved.by.graph
        return _gradients(y, [x], v)[0]

    def jvp(self, p: Params, saved: Point, u: Tensor) -> Tensor:
        """J u; by a graph as the vjp of v -> J^T v, which is linear: many times faster than forward differentiation."""
        if saved.by.graph is None:
            p = [q.detach() for q in p]
            with _alone(), sdpa_kernel(SDPBackend.MATH):  # the others have no forward derivative
                return torch.func.jvp(lambda x: self._call(p, x)[0], (saved.x,), (u,))[1].detach()
        if not self.only_once:
            try:
                return _jvp(*saved.by.graph, u)
            except RuntimeError:
                self.only_once = True
        # Torch's fast kernels of attention and recurrence are differentiated once, its plain ones twice.
        with _alone(), sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
            graph = self.replay(p, saved, saved.x)[1].by.graph
        assert graph is not None
        return _jvp(*graph, u)

    def quotient(self, p: Params, saved: Point, u: Tensor, e: Number, Ju: Tensor | None = None) -> tuple[Tensor, Point]:
        """Ju: the jvp, if it is known."""
        y_moved, moved = self.replay(p, saved, shifted(saved.x, u, e))
        change = saved.y - y_moved
        clear = inner(change, change) > inner(saved.y, saved.y) * torch.finfo(change.dtype).eps
        if clear is True:
            return change / e, moved
        return select(clear, change / divisor(e), self.jvp(p, saved, u) if Ju is None else Ju), moved

    def grads(self, p: Params, saved: Point, v: Tensor) -> Params:
        if not p:
            return ()
        if saved.by.graph is None:
            return torch.func.vjp(lambda *p: self._call(p, saved.x)[0], *p)[1](v)
        _, leaves, y = saved.by.graph
        return _gradients(y, leaves, v)

    def input(self, saved: Point) -> Tensor:
        return saved.x

    def replay(self, p: Params, saved: Point, x: Tensor) -> tuple[Tensor, Point]:
        return self._pass(p, x, saved.by.rng)

    def kept(self, saved: Point) -> dict[str, Tensor] | None:
        training = any(m.training for m in self.module.modules())
        return saved.by.buffers if training and saved.by.buffers else None

    def soundness(self, kept: dict[str, Tensor]) -> Tensor | float:
        """As in `Map`, but for numbers that are not finite now, such as those of a mask."""
        pairs = [(kept[name], b) for name, b in self.module.named_buffers() if b.is_floating_point()]
        return sum((torch.where(old.isfinite(), 0 * new, 0.0).sum() for new, old in pairs), 0.0)

    def commit(self, kept: dict[str, Tensor]) -> None:
        for name, buffer in self.module.named_buffers():
            buffer.copy_(kept[name])

    def _pass(self, p: Params, x: Tensor, rng: Tensor | None) -> tuple[Tensor, Point]:
        generator = _generator(x)
        if not eager():
            with _alone():
                before = None if _recording(x) else generator.get_state()
                y, buffers = self._call(p, x)
                drew = before is not None and not torch.equal(before, generator.get_state())
            if drew:
                raise ValueError(
                    f"{self.module._get_name()} draws random numbers, and an ensemble's or a captured step would "
                    "draw others in every pass; train it with a trainer of its own, or without dropout inside"
                )
            return y, Point(x, y, Pass(buffers))
        with _alone(), torch.enable_grad():
            before = generator.get_state()
            leaves = [q.detach().requires_grad_() for q in p]
            at = x.detach().requires_grad_(x.is_floating_point())
            y, buffers = self._call(leaves, at, rng)
            drew = rng is None and not torch.equal(before, generator.get_state())
        if drew:
            return self._pass(p, x, before)  # as all later ones
        return y.detach(), Point(at.detach(), y.detach(), Pass(buffers, (at, leaves, y), rng))

    def _call(self, p: Params, x: Tensor, rng: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """The output, and the buffers as the pass leaves them; the module's own change in `commit`."""
        given = {name: b.clone() for name, b in self.module.named_buffers()}
        names = tuple(given)
        given.update(zip(self.names, p, strict=True))
        with _alone():
            fused = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)  # a layer of a transformer as one kernel without derivatives
            try:
                with _drawing(x, rng):
                    y = torch.func.functional_call(self.module, given, (x,))
            finally:
                torch.backends.mha.set_fastpath_enabled(fused)
        if not isinstance(y, Tensor):
            raise TypeError(
                f"{self.module._get_name()} returns a {type(y).__name__}, and a block hands on one tensor; wrap it "
                "in a module whose forward returns the tensor to go on with"
            )
        return y, {name: given[name].detach() for name in names}


def _jvp(x: Tensor, p: Params, y: Tensor, u: Tensor) -> Tensor:
    v = torch.zeros_like(y, requires_grad=True)
    with torch.enable_grad():
        pulled = _gradients(y, [x], v, create_graph=True)[0]
    return _gradients(pulled, [v], u)[0]


def _gradients(y: Tensor, of: Sequence[Tensor], v: Tensor, create_graph: bool = False) -> Sequence[Tensor]:
    """Of <v, y>, zero where y does not depend on a tensor; the graph stays."""
    if not y.requires_grad:
        return [torch.zeros_like(t) for t in of]
    return torch.autograd.grad(y, of, v, retain_graph=True, create_graph=create_graph, materialize_grads=True)


def _recording(x: Tensor) -> bool:
    """Whether operations are being compiled or captured, when random numbers cannot be looked at."""
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _generator(x: Tensor) -> torch.Generator:
    return torch.cuda.default_generators[x.device.index] if x.is_cuda else torch.default_generator


@contextmanager
def _drawing(x: Tensor, rng: Tensor | None) -> Iterator[None]:
    """With `rng` random numbers are drawn from that state on, and the state is then as before. Kernels of attention
    draw in different ways, so it is then always the same."""
    if rng is None:
        yield
        return
    now = _generator(x).get_state()
    _generator(x).set_state(rng)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        _generator(x).set_state(now)
