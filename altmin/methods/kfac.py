"""Backprop with K-FAC: the gradient of every layer is multiplied by the inverse of a Kronecker product.

No package has it in a form that can be saved, copied and run on ranks, so it is written out here. With a the inputs of
a layer, a 1 appended for its bias, and d the gradients at its outputs for targets drawn from the model's own
distribution, the layer's block of the Fisher matrix is taken for the Kronecker product of A, the mean of a a^T, and G,
the sum of d d^T.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.optim import Optimizer

from altmin.calculus import map_of
from altmin.calculus.context import LOCAL, Context, sum_tree
from altmin.calculus.linear import Affine
from altmin.common.errors import demand, demand_fraction
from altmin.core.labels import as_rows, class_axis, from_rows
from altmin.core.losses import CrossEntropy, Loss, adapt
from altmin.core.reweighted import of_batch
from altmin.core.trainer import check_weights
from altmin.core.weights.adam_sgd import BETAS, EPS
from altmin.core.weights.decay import groups, undecayed
from altmin.methods.backprop import Backprop, demand_dense, parameter_groups
from altmin.methods.muon import adamw_step
from altmin.methods.protocol import register

DECAY = 0.95
"""The largest weight of the past in the averages of A and G."""


class KFAC(Optimizer):
    """W - lr s V with V = (G + c_G I)^-1 M (A + c_A I)^-1 and M = momentum M + (1 - momentum) dW, where dW has the
    bias's gradient as its last column.

    c_A = pi sqrt(damping) and c_G = sqrt(damping) / pi, with pi^2 the ratio of the mean eigenvalues of A and G. s <= 1
    is one number for all layers, such that the sum of (lr s)^2 <V, M> over them is at most kl_clip. Inverses are
    computed in the first three steps and every `precondition_frequency` steps. Weight decay is decoupled. A group with
    kronecker=True is a layer: its weight, and its bias if it has one. Other groups move by AdamW.
    """

    def __init__(self, params: Any, **options: Any):
        """options: lr, weight_decay, momentum, damping, kl_clip, factor_frequency, precondition_frequency,
        decay_biases."""
        super().__init__(params, {**options, "betas": BETAS, "eps": EPS, "step": 0, "kronecker": False})

    @property
    def layers(self) -> list[dict[str, Any]]:
        return [group for group in self.param_groups if group["kronecker"]]

    def takes_factors(self) -> bool:
        """Whether A and G of the coming step are to be added."""
        return any(group["step"] % group["factor_frequency"] == 0 for group in self.layers)

    def add_factors(self, factors: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Takes A and G of every layer, in a mini-batch, into their averages."""
        for group, new in zip(self.layers, factors, strict=True):
            times = group["step"] // group["factor_frequency"] + 1
            for name, factor in zip("AG", new, strict=True):
                self._state(group)[name].lerp_(factor, 1 - min(1 - 1 / times, DECAY))

    def factor(self, i: int, name: str) -> Tensor:
        """A or G of layer i, the average over steps."""
        found: Tensor = self._state(self.layers[i])[name]
        return found

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        steps = [self._direction(group) for group in self.layers]
        slope = sum((slope for slope, _ in steps), torch.zeros(()))
        for group, (_, step) in zip(self.layers, steps, strict=True):
            largest = group["kl_clip"] / (group["lr"] ** 2 * slope).clamp_min(torch.finfo(slope.dtype).tiny)
            scale = group["lr"] * largest.sqrt().clamp_max(1.0)
            for i, (p, part) in enumerate(zip(group["params"], step, strict=False)):
                decay = group["weight_decay"] * (i == 0 or group["decay_biases"])
                p.mul_(1 - group["lr"] * decay).sub_(scale * part.reshape(p.shape))
        for group in self.param_groups:
            group["step"] += 1
            moved = [p for p in group["params"] if p.grad is not None]
            if moved and not group["kronecker"]:
                adamw_step(self.state, moved, group)
        return loss

    def _direction(self, group: dict[str, Any]) -> tuple[Tensor, Sequence[Tensor]]:
        """Takes the gradients of a layer into M. Returns <V, M> and the parts of V, none if it has no gradients."""
        grads = [p.grad.reshape(len(p), -1) for p in group["params"] if p.grad is not None]
        if len(grads) < len(group["params"]):
            return torch.zeros_like(group["params"][0].sum()), []
        state, step = self._state(group), group["step"] + 1
        if step <= 3 or step % group["precondition_frequency"] == 0:
            pi = _ratio(state["A"], state["G"])
            state["A_inverse"] = inverse(state["A"], pi * group["damping"] ** 0.5)
            state["G_inverse"] = inverse(state["G"], group["damping"] ** 0.5 / pi)
        M = state["M"].lerp_(torch.cat(grads, 1), 1 - group["momentum"])
        V = state["G_inverse"] @ M @ state["A_inverse"]
        return (V * M).sum(), V.split([g.shape[1] for g in grads], 1)

    def _state(self, group: dict[str, Any]) -> dict[str, Any]:
        """That of a layer, which is its weight's."""
        W = group["params"][0]
        state = self.state[W]
        if "A" not in state:
            sizes = {"A": sum(p.numel() // len(p) for p in group["params"]), "G": len(W)}
            state |= {name: W.new_zeros(n, n) for name, n in sizes.items()}
            state |= {f"{name}_inverse": torch.zeros_like(state[name]) for name in sizes}
            state["M"] = W.new_zeros(sizes["G"], sizes["A"])
        return state


def _ratio(A: Tensor, G: Tensor) -> Tensor:
    """pi: the root of the ratio of their mean eigenvalues, and 1 where either is zero."""
    ratio = A.diagonal().mean() / G.diagonal().mean()
    return torch.where((ratio > 0) & ratio.isfinite(), ratio, 1.0).sqrt()


def inverse(M: Tensor, c: Tensor) -> Tensor:
    """(M + c I)^-1 of a matrix without negative eigenvalues, also where rounding has made some negative.

    >>> inverse(torch.diag(torch.tensor([1.0, 3.0])), torch.tensor(1.0)).diagonal()
    tensor([0.5000, 0.2500])
    """
    root, failed = torch.linalg.cholesky_ex(M + c * torch.eye(len(M), dtype=M.dtype, device=M.device))
    if not failed:
        return torch.cholesky_inverse(root)
    values, vectors = torch.linalg.eigh(M)
    return (vectors / (values.clamp_min(0) + c)) @ vectors.mT


def drawn_gradient(loss: Loss, output: Tensor, y: Tensor, context: Context, draw: Callable[..., Tensor]) -> Tensor:
    """A random vector s, like the output, whose covariance is the Hessian H of the loss there, which is the Fisher
    matrix of the distribution that the loss stands for. draw(shape): entries that are 1 or -1.

    Cross-entropies: sqrt(m) (sqrt(p) v - p <sqrt(p), v>) for H = m (diag(p) - p p^T) at every place. Losses with a term
    for each entry, such as squared errors: sqrt(h) v for H = diag(h). For other losses s is the gradient of every
    sample, as in the empirical Fisher matrix.
    """
    at = of_batch(loss, context).at(output, loss.prepare(output, y, context))
    v, samples = context.draw(output.shape, draw), context.samples(output)

    def hessian(q: Tensor) -> Tensor:
        return context.weighted(at.hessian(q))

    if isinstance(loss, CrossEntropy) or isinstance(getattr(loss, "function", None), nn.CrossEntropyLoss):
        axis = 1 if output.ndim == 2 or y.shape == output.shape else class_axis(output, y)
        p, v = as_rows(output, axis).softmax(1), as_rows(v, axis)
        largest = p.max(1, keepdim=True)
        q = torch.zeros_like(p).scatter_(1, largest.indices, 1.0)
        entry = as_rows(hessian(from_rows(q, output.shape, axis)), axis).gather(1, largest.indices)
        m = entry / (largest.values * (1 - largest.values)).clamp_min(torch.finfo(p.dtype).tiny)
        r = p.sqrt()
        s = m.clamp_min(0).sqrt() * (r * v - p * (r * v).sum(1, keepdim=True))
        return from_rows(s, output.shape, axis)
    h = hessian(torch.ones_like(v))
    if bool((torch.isclose(hessian(v), h * v) & (h >= 0)).all()) and bool((h > 0).any()):
        return h.sqrt() * v
    return context.weighted(at.delta) * samples**0.5


class KFACBackprop(Backprop):
    """Backprop whose optimizer is `KFAC`. layers: the maps of the modules that share the weight of each layer."""

    optimizer: KFAC

    def __init__(self, model: nn.Module, optimizer: KFAC, layers: Sequence[Sequence[Affine]], *others: Any):
        super().__init__(model, optimizer, *others)
        self.layers = layers
        self._calls: list[list[tuple[Any, ...]]] = []

    def differentiate(
        self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, context: Context = LOCAL
    ) -> Tensor:
        with self._recorded():
            return super().differentiate(x, y, sample_weight, context)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Keeps the input of every layer meanwhile, and where the gradient at its output is found."""
        self._calls, handles = [[] for _ in self.layers], []
        for maps, calls in zip(self.layers, self._calls, strict=True):
            for m in maps:
                handles += [m.module.register_forward_hook(partial(_record, m, calls))] * self.optimizer.takes_factors()
        try:
            yield
        finally:
            self._calls = []
            for handle in handles:
                handle.remove()

    def _backward(self, loss: Tensor, output: Tensor, y: Tensor, w: Tensor | None, context: Context) -> None:
        if self.optimizer.takes_factors():
            context = context if w is None else replace(context, weights=check_weights(w, output, context))
            self.optimizer.add_factors(self._factors(output, y, context))
        super()._backward(loss, output, y, w, context)

    @torch.no_grad()
    def _factors(self, output: Tensor, y: Tensor, context: Context) -> list[tuple[Tensor, Tensor]]:
        """A and G of every layer in this mini-batch, over all ranks."""
        like, step = self.optimizer.layers[0]["params"][0], self.optimizer.layers[0]["step"]
        generator = torch.Generator(like.device).manual_seed(step)  # so that a run that is resumed draws the same

        def draw(shape: Sequence[int]) -> Tensor:
            signs = torch.randint(2, tuple(shape), generator=generator, device=like.device)
            return (2 * signs - 1).to(like.dtype)

        s = drawn_gradient(adapt(self.loss), output.detach().to(like.dtype), y, context, draw)
        edges = [call[-1] for calls in self._calls for call in calls]
        found = iter(torch.autograd.grad(output, edges, s.to(output.dtype), retain_graph=True, allow_unused=True))
        factors = [self._sums(i, found, context) for i in range(len(self.layers))]
        return sum_tree(factors, context)

    def _sums(self, i: int, found: Iterator[Tensor | None], context: Context) -> tuple[Tensor, Tensor]:
        """This rank's part of A and G of layer i. found: the gradients at the outputs of its calls."""
        A, G = (torch.zeros_like(self.optimizer.factor(i, name)) for name in "AG")
        rows: Any = 0
        for m, x, _ in self._calls[i]:
            if (delta := next(found)) is None:  # the output does not depend on this call
                continue
            a, d = (t.to(A.dtype) for t in m.columns(x, delta))
            each = len(a) // len(x)
            w = 1.0 if context.weights is None else context.weights.repeat_interleave(each).unsqueeze(1)
            A, G, rows = A + (w * a).mT @ a, G + d.mT @ d, rows + context.samples(x) * each
        return A / max(rows, 1), G

    def why_not_captured(self) -> str:
        return "K-FAC decides on the processor when to invert its matrices; use adam with fused=True, or do without"


def _record(m: Affine, calls: list[tuple[Any, ...]], module: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
    """A forward hook. The edge is that of the output as it is now, also if it is overwritten later."""
    if output.requires_grad:
        calls.append((m, given[0].detach(), get_gradient_edge(output)))


def _layers(model: nn.Module) -> list[list[Affine]]:
    """The Linear layers and convolutions whose parameters are all trained: those with the same parameters together."""
    found: dict[tuple[int, ...], list[Affine]] = {}
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) and all(p.requires_grad and p.numel() for p in own):
            m = map_of(module)
            if isinstance(m, Affine) and m.is_linear:
                found.setdefault(tuple(map(id, own)), []).append(m)
    taken: set[int] = set()
    layers = []
    for ids, maps in found.items():
        if not taken & set(ids):  # else a weight with two biases, or the reverse
            layers.append(maps)
            taken |= set(ids)
    return layers


@register("kfac")
def kfac(  # noqa: PLR0913  (its options are those of the command line)
    model: nn.Module,
    lr: float = 0.03,
    weight_decay: float = 0.0,
    momentum: float = 0.9,
    damping: float = 3e-3,
    kl_clip: float = 1.0,
    rest_lr: float = 1e-3,
    factor_frequency: int = 1,
    precondition_frequency: int = 10,
    loss: nn.Module | None = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> KFACBackprop:
    """Backprop with K-FAC: every Linear layer and convolution moves by G^-1 M A^-1, with M the average of its
    gradients, A that of a a^T over its inputs, and G that of d d^T over gradients at its outputs, for targets drawn
    from the model; A and G are damped. Damping and rate are not adapted by trials as in the paper. Other parameters
    (normalisation, embeddings) move by AdamW with the rate rest_lr.

    momentum: of M. damping: of the Fisher matrix. kl_clip: the largest lr^2 <step, M>, about twice the Kullback-Leibler
    divergence that a step causes; beyond it the step is shortened. factor_frequency, precondition_frequency: steps
    between updates of A and G, and of their inverses. Weight decay is decoupled. clip_norm, decay_biases: as in `adam`.
    For a loss that is neither a cross-entropy nor a sum over entries the targets are the data's own.

    Martens, Grosse 2015, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature"; Grosse, Martens
    2016, "A Kronecker-factored approximate Fisher matrix for convolution layers"."""
    demand_dense("kfac", model)
    numbers = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
    parameter_groups("kfac", model, decay_biases, **numbers, rest_lr=rest_lr)
    demand_fraction("kfac", momentum=momentum)
    demand("kfac", "damping", damping, above=True)
    demand("kfac", "kl_clip", kl_clip, above=True)
    counts = {"factor_frequency": factor_frequency, "precondition_frequency": precondition_frequency}
    for name, value in counts.items():
        demand("kfac", name, value, low=1, whole=True)
    layers = _layers(model)
    given: list[dict[str, Any]] = [
        {"params": list(maps[0].module.parameters(recurse=False)), "kronecker": True} for maps in layers
    ]
    held = {id(p) for group in given for p in group["params"]}
    others = [p for p in model.parameters() if id(p) not in held]
    given += [{**group, "lr": rest_lr} for group in groups(others, () if decay_biases else undecayed(model))]
    options = {**numbers, **{name: int(value) for name, value in counts.items()}, "damping": damping}
    optimizer = KFAC(given, **options, kl_clip=kl_clip, decay_biases=decay_biases)
    return KFACBackprop(model, optimizer, layers, loss, clip_norm)
