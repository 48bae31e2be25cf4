"""Modules without a closed form here, of one input or of several."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from altmin.calculus.base import Map, Params
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.multi_input import Direction
from altmin.calculus.whole_batch import whole_batch


@dataclass
class Pass:
    """A pass of a module, with autograd's graph of this one module, which serves `vjp`, `jvp` and `grads`.

    xs, p, y: inputs, parameters and output of the graph. start, buffers: the module's buffers as the pass found and as
    it left them. rng: the state of the random numbers that it began with, None if it drew none. pulled: v and J^T v of
    the last vjp, which is a function of v.
    """

    context: Context
    xs: Sequence[Any]
    p: Params
    y: Tensor
    start: list[Tensor]
    buffers: dict[str, Tensor]
    rng: Tensor | None = None
    pulled: tuple[Tensor, Sequence[Tensor]] | None = None

    @property
    def moving(self) -> list[Tensor]:
        """The inputs that can have a derivative."""
        return [x for x in self.xs if _moves(x)]


class AnyModule(Map):
    """Any module, of one input or of several, through autograd on this one module. `replay` draws the random numbers of
    the first pass. Inputs that are no floating-point tensors have no derivative.

    A step takes one pass, whose graph is differentiated twice: a jvp is the vjp of v -> J^T v, which is linear, and
    takes a fraction of the time of forward differentiation, which serves where torch has no second derivative.
    """

    uses_autograd = True
    draws = False
    """True if a pass was found to draw random numbers."""
    plain: bool | None = None
    """True if the module uses a kernel that is differentiated once only, in place of which torch has a plain one; None
    before the first vjp. A trainer's first check takes one, so that all its steps use the same kernels."""
    changes_input = False
    """True if the module was found to change its input in place; it then works on a copy."""

    def __init__(self, module: nn.Module, several: bool = False):
        super().__init__(module)
        self.several = several
        named = {id(p): name for name, p in module.named_parameters()}
        self._keys = [(key, named[id(p)]) for key, p in _places(module, "_parameters")]

    @property
    def mixes_samples(self) -> bool:  # type: ignore[override]
        norms = [m for m in self.module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        return any(m.training or m.running_mean is None for m in norms)

    def forward(self, p: Params, x: Any, context: Context = LOCAL) -> tuple[Tensor, Pass]:
        return self._pass(p, x if self.several else [x], context, [b.clone() for b in self.module.buffers()], None)

    def replay(self, p: Params, saved: Pass, x: Any) -> tuple[Tensor, Pass]:
        return self._pass(p, x if self.several else [x], saved.context, saved.start, saved.rng)

    def vjp(self, p: Params, saved: Pass, v: Tensor) -> Any:
        grads = [t.detach() for t in self._pulled(p, saved, v)]
        if not self.several:
            return grads[0] if grads else torch.zeros_like(saved.xs[0])
        remaining = iter(grads)
        return [next(remaining, None) if _moves(x) else None for x in saved.xs]

    def jvp(self, p: Params, saved: Pass, u: Any) -> Any:
        if not _moves(saved.y):  # a mask
            return None if self.several else torch.zeros_like(saved.y)
        pairs = zip(saved.xs, u if self.several else [u], strict=True)
        return self._pushed(p, saved, [direction for x, direction in pairs if _moves(x)])

    def grads(self, p: Params, saved: Pass, v: Tensor) -> Params:
        return _gradients(saved.y, saved.p, v) if p else ()

    def functional(self) -> Map:
        return FunctionalModule(self)

    def input(self, saved: Pass) -> Any:
        return saved.xs if self.several else saved.xs[0]

    def kept(self, saved: Pass) -> dict[str, Tensor] | None:
        return saved.buffers or None

    def checked(self, values: dict[str, Tensor]) -> list[Tensor]:
        """Return new values as in `Map`, but for numbers that are not finite now, such as those of a mask."""
        pairs = [(values[name], b) for name, b in self.module.named_buffers() if b.is_floating_point()]
        return [torch.where(old.isfinite(), new, 0.0) for new, old in pairs]

    def commit(self, values: dict[str, Tensor]) -> None:
        for name, buffer in self.module.named_buffers():
            torch.atleast_1d(buffer).copy_(values[name])  # as `common.state.overwrite` does

    def _pulled(self, p: Params, saved: Pass, v: Tensor) -> Sequence[Tensor]:
        """Return J^T v for the inputs that move."""
        if not saved.moving or not _moves(saved.y):
            return ()
        with torch.enable_grad():
            v = v.detach().requires_grad_()
            saved.pulled = v, _gradients(saved.y, saved.moving, v, create_graph=True)
        if self.plain is None and (along := [(t, t.detach()) for t in saved.pulled[1] if t.requires_grad]):
            self.plain = _differentiated(along, v) is None
            if self.plain:
                again = self._pass(saved.p, saved.xs, saved.context, saved.start, saved.rng)[1]
                saved.p, saved.xs, saved.y = again.p, again.xs, again.y
                return self._pulled(p, saved, v)
        return saved.pulled[1]

    def _pushed(self, p: Params, saved: Pass, us: Sequence[Direction]) -> Tensor:
        """Return J u, given a direction for each input that moves."""
        if saved.pulled is None:
            self._pulled(p, saved, saved.y)
        assert saved.pulled is not None
        v, pulled = saved.pulled
        along = [(t, u) for t, u in zip(pulled, us, strict=True) if t.requires_grad and u is not None]
        if not along:
            return torch.zeros_like(saved.y)
        Ju = _differentiated(along, v)
        return self._forward_mode(p, saved, us) if Ju is None else Ju

    def _forward_mode(self, p: Params, saved: Pass, us: Sequence[Direction]) -> Tensor:
        """Return J u by another pass: torch has no second derivative of some operations, such as `hardsigmoid`."""
        try:
            with _drawing(_like(saved.xs, saved.p), saved.rng), _same_tensors(self.module):
                return FunctionalModule(self)._pushed(p, saved, us).detach()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            what = f"{self.module._get_name()} has neither second nor forward derivatives in torch, and moving codes"
            raise ValueError(f"{what} takes one of them; replace the operation that lacks them: {error}") from None

    def _pass(
        self, p: Params, xs: Sequence[Any], context: Context, start: list[Tensor], rng: Tensor | None
    ) -> tuple[Tensor, Pass]:
        like = _like(xs, p)
        generator = _generator(like)
        before = generator.get_state() if rng is None else rng
        kernels = _plain_kernels() if self.plain else nullcontext()
        with torch.enable_grad(), _drawing(like, rng), kernels, _same_tensors(self.module):
            leaves = [q.detach().requires_grad_() for q in p]
            at = [x.detach().requires_grad_(_moves(x)) if isinstance(x, Tensor) else x for x in xs]
            try:
                y, buffers = self._call(leaves, self._inputs(at), context, start)
            except RuntimeError as error:
                if self.changes_input or "a leaf Variable that requires grad" not in str(error):
                    raise
                self.changes_input = True
                y, buffers = self._call(leaves, self._inputs(at), context, start)
        drew = rng is not None or not torch.equal(before, generator.get_state())
        self.draws = self.draws or drew
        return y.detach(), Pass(context, at, leaves, y, start, buffers, before if drew else None)

    def _inputs(self, at: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs that the module is called with."""
        return [x.clone() if _moves(x) else x for x in at] if self.changes_input else at

    def _call(
        self, p: Params, xs: Sequence[Any], context: Context, start: list[Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the output, and the buffers as the pass leaves them; the module's own change in `commit`."""
        clones = {id(b): t.clone() for b, t in zip(self.module.buffers(), start, strict=True)}
        tensors = {key: clones[id(b)] for key, b in _places(self.module, "_buffers")}
        params = dict(zip(self.names, p, strict=True))
        tensors.update({key: params[name] for key, name in self._keys})
        with whole_batch(context):
            y = torch.func.functional_call(self.module, tensors, tuple(xs), tie_weights=False)
        if not isinstance(y, Tensor):
            raise ValueError(
                f"{self.module._get_name()} returns a {type(y).__name__}, and a block hands on one tensor; wrap it "
                "in a module whose forward returns the tensor to go on with"
            )
        if y.dtype in (torch.bfloat16, torch.float16):  # of torch.autocast
            y = y.to(next((t.dtype for t in (*xs, *p) if _moves(t)), y.dtype))
        for name, b in self.module.named_buffers():
            before, after = (tuple(t.shape) for t in (clones[id(b)], tensors[name]))
            if before != after:
                raise ValueError(
                    f"{self.module._get_name()} replaces its buffer {name!r} of shape {before} by one of {after}, "
                    "and a step keeps shapes; call the model on such a batch once before (nothing was changed)"
                )
        return y, {name: tensors[name].detach() for name, _ in self.module.named_buffers()}


class FunctionalModule(AnyModule):
    """An `AnyModule` by `torch.func`, for ensembles and recorded steps. A jvp is another pass, by forward
    differentiation. ValueError for a module that draws random numbers, since each pass would draw others."""

    def __init__(self, of: AnyModule):
        super().__init__(of.module, of.several)
        self.of, self.changes_input = of, of.changes_input
        layers = nn.MultiheadAttention | nn.TransformerEncoderLayer
        self.fuses = any(isinstance(m, layers) for m in of.module.modules())
        """True if torch may use its kernel for a whole layer of attention."""
        self.recurs = any(isinstance(m, nn.RNNBase) for m in of.module.modules())
        """True if torch may use a recurrent kernel, which takes no tensors of `torch.func`."""

    def functional(self) -> Map:
        return self

    def _pass(
        self, p: Params, xs: Sequence[Any], context: Context, start: list[Tensor], rng: Tensor | None
    ) -> tuple[Tensor, Pass]:
        if self.of.draws or any(map(_drops, self.module.modules())):
            raise ValueError(
                f"{self.module._get_name()} draws random numbers, and an ensemble's or a recorded step would draw "
                "others in every pass; train it with a trainer of its own, or without dropout inside"
            )

        def call(p: Params, moving: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return self._call(p, self._inputs(_placed(xs, moving)), context, start)

        primals = [q.detach() for q in p], [x for x in xs if _moves(x)]
        if not any(primals):  # nothing to differentiate by: the output may be integers
            y, buffers = self._call(p, xs, context, start)
            return y, Pass(context, xs, p, y, start, buffers)
        with _plain_kernels() if self.recurs else nullcontext():
            y, pull, buffers = torch.func.vjp(call, *primals, has_aux=True)  # type: ignore[misc]
        return y, _PulledPass(context, xs, p, y, start, buffers, None, None, pull)

    def jvp(self, p: Params, saved: Pass, u: Any) -> Any:
        try:
            return super().jvp(p, saved, u)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            what = f"{self.module._get_name()} has no forward derivative in torch"
            raise ValueError(f"{what}, which recorded steps and ensembles take: {error}") from error

    def _inputs(self, at: Sequence[Any]) -> Sequence[Any]:
        """Return views, as compiled the inputs themselves would look as if they needed no gradient."""
        return [x.view_as(x) if _moves(x) else x for x in super()._inputs(at)]

    def grads(self, p: Params, saved: Pass, v: Tensor) -> Params:
        return saved.pull(v)[0] if p and isinstance(saved, _PulledPass) else ()

    def _pulled(self, p: Params, saved: Pass, v: Tensor) -> Sequence[Tensor]:
        return saved.pull(v)[1] if isinstance(saved, _PulledPass) and _moves(saved.y) else ()

    def _pushed(self, p: Params, saved: Pass, us: Sequence[Direction]) -> Tensor:
        directions = [torch.zeros_like(x) if u is None else u for x, u in zip(saved.moving, us, strict=True)]

        def call(*moving: Tensor) -> Tensor:
            return self._call(p, self._inputs(_placed(saved.xs, moving)), saved.context, saved.start)[0]

        p = [q.detach() for q in p]
        plain = _layer_by_layer() if self.fuses else nullcontext()
        kernels = _plain_kernels() if self.recurs else sdpa_kernel(SDPBackend.MATH)
        with kernels, plain:  # the other kernels have no forward derivative
            return torch.func.jvp(call, tuple(saved.moving), tuple(directions))[1]


@dataclass
class _PulledPass(Pass):
    """A pass with v -> J^T v for parameters and inputs, as `torch.func.vjp` returns it."""

    pull: Any = None


def _places(module: nn.Module, kind: str) -> list[tuple[str, Any]]:
    """Return the places of a module's parameters or buffers, each place under one name: a module that is held under two
    is one place, and a tensor that two modules hold is at two. `functional_call` by itself treats the former as two,
    and leaves its own tensor there."""
    places = [
        (f"{prefix}.{name}" if prefix else name, t)
        for prefix, m in module.named_modules()
        for name, t in vars(m)[kind].items()
    ]
    return [(key, t) for key, t in places if t is not None]


def _moves(x: Any) -> bool:
    """Return whether an input can have a derivative."""
    return isinstance(x, Tensor) and x.is_floating_point()


def _drops(m: nn.Module) -> bool:
    """Return whether a module of torch draws random numbers."""
    p = m.p if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", 0)
    return m.training and isinstance(p, float) and p > 0


def _like(xs: Sequence[Any], p: Params) -> Tensor:
    """Return a tensor on the device of a pass. A part may take nothing but a size, such as a slice of a parameter."""
    return next((t for t in (*xs, *p) if isinstance(t, Tensor)), torch.empty(0))


def _placed(xs: Sequence[Any], moving: Sequence[Tensor]) -> list[Any]:
    """Return the inputs with others in the places of those that move."""
    values = iter(moving)
    return [next(values) if _moves(x) else x for x in xs]


def _gradients(y: Any, of: Sequence[Tensor], v: Any, create_graph: bool = False) -> Sequence[Tensor]:
    """Return the gradients of <v, y>, zero where y does not depend on a tensor; the graph stays."""
    if isinstance(y, Tensor) and not y.requires_grad:
        return [torch.zeros_like(t) for t in of]
    return torch.autograd.grad(y, of, v, retain_graph=True, create_graph=create_graph, materialize_grads=True)


def _differentiated(pairs: Sequence[tuple[Tensor, Tensor]], v: Tensor) -> Tensor | None:
    """Return the gradient by v of the sum of <u, t> over pairs (t, u) of tensors computed from v; the graph stays. None
    where torch has none, or t does not lead back to v: it went through a `once_differentiable` function."""
    ends, weights = zip(*pairs, strict=True)
    try:
        return torch.autograd.grad(ends, v, weights, retain_graph=True, allow_unused=True)[0]
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return None


def _generator(x: Tensor) -> torch.Generator:
    return torch.cuda.default_generators[x.device.index] if x.is_cuda else torch.default_generator


@contextmanager
def _drawing(x: Tensor, rng: Tensor | None) -> Iterator[None]:
    """Draw random numbers from the state `rng`, if there is one, and restore the state at the end."""
    if rng is None:
        yield
        return
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        _generator(x).set_state(rng)
        yield


@contextmanager
def _same_tensors(module: nn.Module) -> Iterator[None]:
    """Restore a module's parameters and buffers at the end: `functional_call` that is interrupted while it replaces
    them leaves others in their places."""
    tables: list[Any] = [tensors for m in module.modules() for tensors in (m._parameters, m._buffers)]
    before = [{name: t for name, t in tensors.items() if t is not None} for tensors in tables]
    try:
        yield
    finally:
        for tensors, originals in zip(tables, before, strict=True):
            tensors.update(originals)


_one_thread = threading.RLock()
"""Torch's choice of kernels is a setting of the process: only one thread at a time changes it."""


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Compute attention and recurrence by operations with derivatives of every order inside the context."""
    with _one_thread, sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
        yield


@contextmanager
def _layer_by_layer() -> Iterator[None]:
    """Keep torch's modules of attention from using the kernel for a whole layer inside the context."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
