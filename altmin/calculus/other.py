"""Modules without a closed form here, of one input or of several."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from altmin.calculus.base import Map, Params, divisor, shifted
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.multi_input import Direction
from altmin.calculus.numbers import select
from altmin.calculus.whole_batch import whole_batch

Graph = tuple[list[Any], list[Tensor], Tensor]


@dataclass
class Pass:
    """The record of a module's pass in a context. buffers: as it left them. graph: its inputs, its parameters
    and its output with autograd's graph of this one module, which serves `vjp` and `grads` without another pass. pull:
    in its place, inside `torch.func` and in what is compiled, v -> J^T v, as `_traced` returns it. rng: in an eager
    step the state of the random numbers that it began with, None if it drew none. twice: a graph that can be
    differentiated twice where `graph` cannot. start: the module's buffers as the pass found them, with which it is
    repeated."""

    context: Context
    buffers: dict[str, Tensor]
    start: list[Tensor]
    graph: Graph | None = None
    pull: Callable[[Tensor], Sequence[Sequence[Tensor]]] | None = None
    rng: Tensor | None = None
    twice: Graph | None = None

    def either(self) -> "Pass":
        """What is known of a point that is one of two: graphs of two points cannot be combined."""
        return Pass(self.context, self.buffers, self.start)


class Point(NamedTuple):
    """A module's inputs and output, without graphs, and the pass between them."""

    xs: list[Any]
    y: Tensor
    by: Pass


class AnyModule(Map):
    """Any module, of one input or of several, through autograd on this one module. Its quotient is that of two outputs
    where they differ by clearly more than their rounding, else the jvp. In an eager step all operations at a point, and
    at those it moves to, see the random numbers of its first pass; elsewhere a module that draws some is refused with a
    ValueError. Inputs that are no floating-point tensors have no derivative.

    Passes in a step: one at the encoded code and one where it moves to. A jvp takes another where a kernel has no
    second derivative, inside `torch.func`, and in what is compiled; so do `vjp` and `grads`, together, if the
    device decides which of the two points is the last."""

    uses_autograd = True
    only_once = False
    """Whether a kernel of the module was found to have no second derivative."""
    changes_input = False
    """Whether the module was found to change its input in place; it then works on a copy."""

    def __init__(self, module: nn.Module, several: bool = False):
        super().__init__(module)
        self.several = several
        named = {id(p): name for name, p in module.named_parameters()}
        self._keys = [(key, named[id(p)]) for key, p in _places(module, "_parameters")]
        self.attends = any(isinstance(m, nn.MultiheadAttention) for m in module.modules())
        self.recurs = any(isinstance(m, nn.RNNBase) for m in module.modules())

    @property
    def mixes_samples(self) -> bool:  # type: ignore[override]
        norms = [m for m in self.module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        return any(m.training or m.running_mean is None for m in norms)

    def forward(self, p: Params, x: Any, context: Context = LOCAL) -> tuple[Tensor, Point]:
        return self._pass(p, self._listed(x), None, context, [b.clone() for b in self.module.buffers()])

    def vjp(self, p: Params, saved: Point, v: Tensor) -> Any:
        found: Sequence[Tensor] = ()
        if _moves(saved.y) and any(map(_moves, saved.xs)):
            graph = self._graph(p, saved)
            if graph is None:
                found = self._pulled(p, saved, v)[1]
            else:
                found = _gradients(graph[2], [x for x in graph[0] if _moves(x)], v)
        if self.several:
            each = iter(found)
            return [next(each, None) if _moves(x) else None for x in saved.xs]
        return found[0] if found else torch.zeros_like(saved.xs[0])

    def jvp(self, p: Params, saved: Point, u: Any) -> Any:
        """J u; by a graph as the vjp of v -> J^T v, which is linear: many times faster than forward differentiation."""
        if not _moves(saved.y):  # a mask
            return None if self.several else torch.zeros_like(saved.y)
        us, graph = self._listed(u), self._graph(p, saved)
        if graph is None:
            return self._pushed(p, saved, us)
        if not self.only_once:
            try:
                return _jvp(*graph, us)
            except RuntimeError:
                self.only_once = True
        twice = saved.by.twice
        if twice is None:
            # Torch's fast kernels of attention and recurrence are differentiated once, its plain ones twice.
            recurrent = torch.backends.cudnn.flags(enabled=False) if self.recurs else nullcontext()
            with _plain_attention(), recurrent:
                twice = self._replayed(p, saved, saved.xs)[1].by.graph
        assert twice is not None
        try:
            found = _jvp(*twice, us)
        except NotImplementedError as error:
            name = self.module._get_name()
            raise ValueError(f"{name} has no second derivative in torch, which moving codes takes: {error}") from None
        if not saved.by.context.eager:  # there `quotient` needs another jvp
            saved.by.twice = twice
        return found

    def quotient(self, p: Params, saved: Point, u: Any, e: Tensor, Ju: Tensor | None = None) -> tuple[Any, Point]:
        """Ju: the jvp, if it is known."""
        pairs = zip(saved.xs, self._listed(u), strict=True)
        y_moved, moved = self._replayed(p, saved, [x if u is None else shifted(x, u, e) for x, u in pairs])
        if not _moves(saved.y):
            return None if self.several else torch.zeros_like(saved.y), moved
        change = saved.y - y_moved
        changed, whole = saved.by.context.inners([(change, change), (saved.y, saved.y)])
        clear = changed > whole * torch.finfo(change.dtype).eps
        if saved.by.context.eager and bool(clear):
            return change / e, moved
        clear = clear.to(change.device)
        return select(clear, change / divisor(e), self.jvp(p, saved, u) if Ju is None else Ju), moved

    def grads(self, p: Params, saved: Point, v: Tensor) -> Params:
        if not p:
            return ()
        graph = self._graph(p, saved)
        if graph is None:
            return self._pulled(p, saved, v)[0]
        _, leaves, y = graph
        return _gradients(y, leaves, v)

    def input(self, saved: Point) -> Any:
        return saved.xs if self.several else saved.xs[0]

    def replay(self, p: Params, saved: Point, x: Any) -> tuple[Tensor, Point]:
        return self._replayed(p, saved, self._listed(x))

    def kept(self, saved: Point) -> dict[str, Tensor] | None:
        return saved.by.buffers or None

    def checked(self, kept: dict[str, Tensor]) -> list[Tensor]:
        """As in `Map`, but for numbers that are not finite now, such as those of a mask."""
        pairs = [(kept[name], b) for name, b in self.module.named_buffers() if b.is_floating_point()]
        return [torch.where(old.isfinite(), new, 0.0) for new, old in pairs]

    def commit(self, kept: dict[str, Tensor]) -> None:
        for name, buffer in self.module.named_buffers():
            buffer.copy_(kept[name])

    def _listed(self, x: Any) -> Sequence[Any]:
        return x if self.several else [x]

    def _replayed(self, p: Params, saved: Point, xs: Sequence[Any]) -> tuple[Tensor, Point]:
        return self._pass(p, xs, saved.by.rng, saved.by.context, saved.by.start)

    def _graph(self, p: Params, saved: Point) -> Graph | None:
        """That of the pass at a point, or of a new one if the device decides which point that is; None
        inside `torch.func` and in what is compiled."""
        if saved.by.graph is None and not saved.by.context.traced:
            saved.by.graph = self._replayed(p, saved, saved.xs)[1].by.graph
        return saved.by.graph

    def _pass(
        self, p: Params, xs: Sequence[Any], rng: Tensor | None, context: Context, start: list[Tensor]
    ) -> tuple[Tensor, Point]:
        like = _like(xs, p)
        generator = _generator(like)
        before = None if _recording(like) else generator.get_state()
        if context.traced:
            y, pull, buffers = self._traced(p, xs, context, start)
            point = Point(list(xs), y, Pass(context, buffers, start, pull=pull))
        else:
            point = self._with_graph(p, xs, rng, context, start)
        drew = rng is None and before is not None and not torch.equal(before, generator.get_state())
        if drew and not context.eager:
            raise ValueError(
                f"{self.module._get_name()} draws random numbers, and an ensemble's or a captured step would "
                "draw others in every pass; train it with a trainer of its own, or without dropout inside"
            )
        return self._pass(p, xs, before, context, start) if drew else (point.y, point)  # draws as all later passes do

    def _with_graph(
        self, p: Params, xs: Sequence[Any], rng: Tensor | None, context: Context, start: list[Tensor]
    ) -> Point:
        with torch.enable_grad():
            leaves = [q.detach().requires_grad_() for q in p]
            at = [x.detach().requires_grad_(_moves(x)) if isinstance(x, Tensor) else x for x in xs]
            try:
                y, buffers = self._call(leaves, self._given(at), context, start, rng)
            except RuntimeError as error:
                if self.changes_input or "a leaf Variable that requires grad" not in str(error):
                    raise
                self.changes_input = True
                y, buffers = self._call(leaves, self._given(at), context, start, rng)
        if not all(leaf.requires_grad for leaf in leaves):
            raise ValueError(
                f"{self.module._get_name()} freezes its parameters in its forward; do that before training"
            )
        point = [x.detach() if isinstance(x, Tensor) else x for x in at]
        return Point(point, y.detach(), Pass(context, buffers, start, (at, leaves, y), rng=rng))

    def _given(self, at: Sequence[Any]) -> Sequence[Any]:
        """The inputs that the module is called with."""
        return [x.clone() if _moves(x) else x for x in at] if self.changes_input else at

    def _traced(self, p: Params, xs: Sequence[Any], context: Context, start: list[Tensor]) -> Any:
        """The output, v -> J^T v for the parameters and for the inputs that move, and the buffers."""
        given = [q.detach() for q in p], [x for x in xs if _moves(x)]
        if not any(given):  # nothing to differentiate by: the output may be integers
            y, buffers = self._call(p, xs, context, start)
            return y, None, buffers
        return torch.func.vjp(
            lambda p, moving: self._call(p, _placed(xs, moving), context, start), *given, has_aux=True
        )

    def _pulled(self, p: Params, saved: Point, v: Tensor) -> Sequence[Sequence[Tensor]]:
        """J^T v for the parameters and for the inputs that move, where a pass has no graph."""
        pull = saved.by.pull
        if pull is None:  # torch.compile has no truth value of a function
            pull = self._traced(p, saved.xs, saved.by.context, saved.by.start)[1]
        return pull(v)

    def _pushed(self, p: Params, saved: Point, us: Sequence[Direction]) -> Tensor:
        """J u by forward differentiation."""
        p, context, start = [q.detach() for q in p], saved.by.context, saved.by.start
        moving = [(x, u) for x, u in zip(saved.xs, us, strict=True) if _moves(x)]
        xs, directions = zip(*((x, torch.zeros_like(x) if u is None else u) for x, u in moving), strict=True)
        with _plain_attention():  # the other kernels have no forward derivative
            found = torch.func.jvp(lambda *xs: self._call(p, _placed(saved.xs, xs), context, start)[0], xs, directions)
        return found[1].detach()

    def _call(
        self, p: Params, xs: Sequence[Any], context: Context, start: list[Tensor], rng: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The output, and the buffers as the pass leaves them; the module's own change in `commit`."""
        clones = {id(b): t.clone() for b, t in zip(self.module.buffers(), start, strict=True)}
        given = {key: clones[id(b)] for key, b in _places(self.module, "_buffers")}
        names = tuple(name for name, _ in self.module.named_buffers())
        mine = dict(zip(self.names, p, strict=True))
        given.update({key: mine[name] for key, name in self._keys})
        whole = _layer_by_layer() if self.attends else nullcontext()
        with whole, _drawing(_like(xs, p), rng), whole_batch(context):
            y = torch.func.functional_call(self.module, given, tuple(xs), tie_weights=False)
        if not isinstance(y, Tensor):
            raise ValueError(
                f"{self.module._get_name()} returns a {type(y).__name__}, and a block hands on one tensor; wrap it "
                "in a module whose forward returns the tensor to go on with"
            )
        return y, {name: given[name].detach() for name in names}


def _places(module: nn.Module, kind: str) -> list[tuple[str, Any]]:
    """The places of a module's parameters or buffers, each place under one name: a module that is held under two is
    one place, and a tensor that two modules hold is at two. `functional_call` by itself treats the former as two, and
    leaves its own tensor there."""
    found = [
        (f"{prefix}.{name}" if prefix else name, t)
        for prefix, m in module.named_modules()
        for name, t in vars(m)[kind].items()
    ]
    return [(key, t) for key, t in found if t is not None]


def _moves(x: Any) -> bool:
    """Whether an input can have a derivative."""
    return isinstance(x, Tensor) and x.is_floating_point()


def _like(xs: Sequence[Any], p: Params) -> Tensor:
    """A tensor on the device of a pass. A part may take nothing but a size, such as a slice of a parameter."""
    return next((t for t in (*xs, *p) if isinstance(t, Tensor)), torch.empty(0))


def _placed(xs: Sequence[Any], moving: Sequence[Tensor]) -> list[Any]:
    """The inputs with others in the places of those that move."""
    each = iter(moving)
    return [next(each) if _moves(x) else x for x in xs]


def _jvp(xs: Sequence[Any], p: Params, y: Tensor, us: Sequence[Direction]) -> Tensor:
    moving = [(x, u) for x, u in zip(xs, us, strict=True) if u is not None]
    v = y.detach().requires_grad_()  # any values work
    with torch.enable_grad():
        pulled = _gradients(y, [x for x, _ in moving], v, create_graph=True)
        if not any(t.requires_grad for t in pulled):
            return torch.zeros_like(y)
        along = [(t, u) for t, (_, u) in zip(pulled, moving, strict=True) if t.requires_grad]
    return torch.autograd.grad([t for t, _ in along], [v], [u for _, u in along], materialize_grads=True)[0]


def _gradients(y: Tensor, of: Sequence[Tensor], v: Tensor, create_graph: bool = False) -> Sequence[Tensor]:
    """Of <v, y>, zero where y does not depend on a tensor; the graph stays."""
    if not y.requires_grad:
        return [torch.zeros_like(t) for t in of]
    return torch.autograd.grad(y, of, v, retain_graph=True, create_graph=create_graph, materialize_grads=True)


def _recording(x: Tensor) -> bool:
    """Whether operations are being compiled or captured, when the random state cannot be read."""
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
    with torch.random.fork_rng([x.device] if x.is_cuda else []), _plain_attention():
        _generator(x).set_state(rng)
        yield


_one_thread = threading.RLock()
"""Torch's choice of kernels is a setting of the process: only one thread at a time changes it."""


def _plain_attention() -> AbstractContextManager[Any]:
    """Within, attention is computed by operations with derivatives of every order."""
    return sdpa_kernel(SDPBackend.MATH) if torch.compiler.is_compiling() else _math_kernel()


@contextmanager
def _math_kernel() -> Iterator[None]:
    with _one_thread, sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def _layer_by_layer() -> Iterator[None]:
    """Within, torch's modules of attention do not use the kernel for a whole layer, which has no derivatives."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
