"""Backprop with K-FAC, which no package has for layers that are called at many places of an image or a text.

With a the inputs of a layer, a 1 appended for its bias, and d the gradients at its outputs for targets drawn from the
model's own distribution, the layer's block of the Fisher matrix is taken for the Kronecker product of A, the mean of
a a^T, and G, the sum of d d^T.

Martens, Grosse 2015, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature"; Grosse, Martens 2016,
"A Kronecker-factored approximate Fisher matrix for convolution layers".
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.optim import Adam

from altmin.calculus import map_of
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.linear import Affine
from altmin.core.losses import Loss, adapt
from altmin.core.weights.rule import as_matrix
from altmin.methods import register
from reproduction.opponents.preconditioned import Preconditioned

DECAY = 0.95
"""The largest weight of the past in the averages of A and G."""
EVERY = 10
"""Steps between two inversions, after the first three."""


class KFAC(Adam):
    """W - lr s V with V = (G + c_G I)^-1 M (A + c_A I)^-1 and M = momentum M + (1 - momentum) dW, where dW has the
    bias's gradient as its last column.

    c_A = pi sqrt(damping) and c_G = sqrt(damping) / pi, with pi^2 the ratio of the mean eigenvalues of A and G. s <= 1
    is one number for all layers, such that the sum of (lr s)^2 <V, M> over them is at most kl_clip. Groups of the
    layers have the options momentum, damping and kl_clip; other groups move by Adam.
    """

    @property
    def layers(self) -> list[dict[str, Any]]:
        return [group for group in self.param_groups if "kl_clip" in group]

    def add_factors(self, i: int, A: Tensor, G: Tensor) -> None:
        """Take A and G of layer i, in a mini-batch, into their averages."""
        W, *bias = self.layers[i]["params"]
        if W not in self.state:
            zero = torch.zeros_like(as_matrix([W, *bias]))
            self.state[W] = {"A": torch.zeros_like(A), "G": torch.zeros_like(G), "M": zero, "taken": 0}
        state = self.state[W]
        state["taken"] += 1
        for name, new in (("A", A), ("G", G)):
            state[name].lerp_(new, max(1 / state["taken"], 1 - DECAY))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        groups, layers = self.param_groups, self.layers
        self.param_groups = [group for group in groups if "kl_clip" not in group]
        super().step()
        self.param_groups = groups
        found = [self._direction(group) for group in layers]
        slope = sum((V * M).sum() for V, M in found)
        for group, (V, _) in zip(layers, found, strict=True):
            clip = group["kl_clip"] / (group["lr"] ** 2 * slope).clamp_min(torch.finfo(V.dtype).tiny)
            parts = V.split([p.numel() // len(p) for p in group["params"]], 1)
            for p, part in zip(group["params"], parts, strict=True):
                p.sub_(group["lr"] * clip.sqrt().clamp_max(1.0) * part.reshape(p.shape))

    def _direction(self, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
        state = self.state[group["params"][0]]
        if state["taken"] <= 3 or state["taken"] % EVERY == 0:
            pi = _ratio(state["A"], state["G"])
            state["A_inverse"] = inverse(state["A"], pi * group["damping"] ** 0.5)
            state["G_inverse"] = inverse(state["G"], group["damping"] ** 0.5 / pi)
        M = state["M"].lerp_(as_matrix([p.grad for p in group["params"]]), 1 - group["momentum"])
        return state["G_inverse"] @ M @ state["A_inverse"], M


def _ratio(A: Tensor, G: Tensor) -> Tensor:
    """Return pi, the root of the ratio of mean eigenvalues; 1 where either is zero."""
    ratio = A.diagonal().mean() / G.diagonal().mean()
    return torch.where((ratio > 0) & ratio.isfinite(), ratio, 1.0).sqrt()


def inverse(M: Tensor, c: Tensor) -> Tensor:
    """Return (M + c I)^-1 for a matrix without negative eigenvalues, also where rounding has made some negative.

    >>> inverse(torch.diag(torch.tensor([1.0, 3.0])), torch.tensor(1.0)).diagonal()
    tensor([0.5000, 0.2500])
    """
    root, failed = torch.linalg.cholesky_ex(M + c * torch.eye(len(M), dtype=M.dtype, device=M.device))
    if not failed:
        return torch.cholesky_inverse(root)
    values, vectors = torch.linalg.eigh(M)
    return (vectors / (values.clamp_min(0) + c)) @ vectors.mT


def drawn_gradient(loss: Loss, output: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Return a random vector whose covariance is the Hessian H of the loss at the output, given signs v like it.

    Labels: sqrt(m) (sqrt(p) v - p <sqrt(p), v>) for H = m (diag(p) - p p^T), the classes in the last dimension. Losses
    with a term for each entry, such as squared errors: sqrt(h) v for H = diag(h).
    """
    at = loss.at(output, loss.prepare(output, y))
    if y.is_floating_point():
        return at.hessian(torch.ones_like(v)).sqrt() * v
    p = output.softmax(-1)
    r = p.sqrt()
    return (r * v - p * (r * v).sum(-1, keepdim=True)) / y.numel() ** 0.5


class KFACBackprop(Preconditioned):
    """Backprop whose optimizer is `KFAC`. layers: the maps of its layers."""

    optimizer: KFAC

    def __init__(self, model: nn.Module, optimizer: KFAC, layers: list[Affine], loss: Any):
        super().__init__(model, optimizer, loss)
        self.layers, self.steps = layers, 0

    def differentiate(self, x: Any, y: Tensor, sample_weight: Tensor | None = None, context: Context = LOCAL) -> Tensor:
        self.optimizer.zero_grad()
        calls: list[list[Any]] = [[] for _ in self.layers]
        handles = [
            m.module.register_forward_hook(partial(_record, own)) for m, own in zip(self.layers, calls, strict=True)
        ]
        try:
            output = self.model(x)
        finally:
            for handle in handles:
                handle.remove()
        loss = self.loss(output, y)
        self._add_factors(output, y, calls)
        loss.backward()
        return loss.detach()

    def _add_factors(self, output: Tensor, y: Tensor, calls: list[list[Any]]) -> None:
        generator = torch.Generator(output.device).manual_seed(self.steps)  # a resumed run draws the same
        self.steps += 1
        signs = 2.0 * torch.randint(2, output.shape, generator=generator, device=output.device) - 1
        s = drawn_gradient(adapt(self.loss), output.detach(), y, signs.to(output.dtype))
        found = iter(torch.autograd.grad(output, [edge for own in calls for _, edge in own], s, retain_graph=True))
        for i, (m, own) in enumerate(zip(self.layers, calls, strict=True)):
            pairs = [m.columns(x, next(found)) for x, _ in own]
            a, d = (torch.cat(part) for part in zip(*pairs, strict=True))
            self.optimizer.add_factors(i, a.mT @ a / len(a), d.mT @ d)


def _record(calls: list[Any], module: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
    """A forward hook. The edge is that of the output as it is now, also if it is overwritten later."""
    calls.append((given[0].detach(), get_gradient_edge(output)))


@register("kfac")
def kfac(
    model: nn.Module,
    lr: float = 0.03,
    momentum: float = 0.9,
    damping: float = 3e-3,
    kl_clip: float = 1.0,
    rest_lr: float = 1e-3,
    loss: nn.Module | None = None,
) -> KFACBackprop:
    """Backprop with K-FAC on every Linear layer and ungrouped convolution; other parameters move by Adam with rest_lr.

    Damping and rate are not adapted by trials as in the paper. kl_clip: the largest lr^2 <step, M>, about twice the
    Kullback-Leibler divergence that a step causes; beyond it the step is shortened."""
    modules = [m for m in model.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
    maps = [map_of(m) for m in modules if all(p.requires_grad for p in m.parameters())]
    layers = [m for m in maps if isinstance(m, Affine) and m.is_linear]
    own = {"lr": lr, "momentum": momentum, "damping": damping, "kl_clip": kl_clip}
    groups: list[dict[str, Any]] = [{"params": list(m.module.parameters()), **own} for m in layers]
    held = {id(p) for group in groups for p in group["params"]}
    rest = [p for p in model.parameters() if id(p) not in held]
    groups += [{"params": rest, "lr": rest_lr}] * bool(rest)
    return KFACBackprop(model, KFAC(groups, lr), layers, loss)
