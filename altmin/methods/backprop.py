"""Backpropagation with Adam, AdamW or SGD on the same module, to compare with."""

from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context, sum_tree
from altmin.calculus.whole_batch import whole_batch
from altmin.common.describe import describe
from altmin.common.inputs import as_inputs, call, tensors_of
from altmin.common.state import demand_separate
from altmin.core.labels import LossFunction, by_label
from altmin.core.losses import adapt, demand_same_shape
from altmin.core.trainer import check_weights
from altmin.core.weights.decay import groups, undecayed
from altmin.methods.base import LossOnly as LossOnly
from altmin.methods.base import OptimizerMethod
from altmin.methods.protocol import register
from altmin.optim import CoActivation


class Backprop(OptimizerMethod):
    """Backpropagation: `loss.backward()`, then a step of a torch optimizer. loss: None is cross-entropy; torch's takes
    outputs (samples, time, classes) here too. clip_norm: the largest norm of all gradients together, as
    `torch.nn.utils.clip_grad_norm_` has it; None for no limit."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: LossFunction | None = None,
        clip_norm: float | None = None,
    ):
        # what distinguishes a run, besides optimizer and loss
        super().__init__(model, {} if clip_norm is None else {"clip_norm": clip_norm}, optimizer)
        self.clip_norm = clip_norm
        self.loss = by_label(loss or nn.CrossEntropyLoss())
        if optimizer.defaults.get("fused"):
            demand_separate(model.named_parameters())

    def __repr__(self) -> str:
        clip = "" if self.clip_norm is None else f", clip_norm={self.clip_norm}"
        return f"Backprop(optimizer={' '.join(repr(self.optimizer).split())}, loss={describe(self.loss)}{clip})"

    def step(self, x: Any, y: Tensor, sample_weight: Tensor | None = None, *, context: Context = LOCAL) -> LossOnly:
        """Take a step. x: a tensor; for a model of several inputs a tuple of tensors, or a dict by the names of its
        arguments. sample_weight: one for each sample; the loss is then the weighted mean."""
        loss = self.differentiate(x, y, sample_weight, context)
        self.update()
        return LossOnly(loss)

    def update(self) -> None:
        """Take a step of the optimizer along the parameters' `grad`, clipped first."""
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()

    def differentiate(self, x: Any, y: Tensor, sample_weight: Tensor | None = None, context: Context = LOCAL) -> Tensor:
        """Return the loss; its gradient is left in every parameter's `grad`, and no weight has moved."""
        self.optimizer.zero_grad()
        x = as_inputs(x)
        with whole_batch(context):
            output = call(self.model, x)
            demand_same_shape(self.loss, output, y)
            if sample_weight is None:
                loss: Tensor = self.loss(output, y)
            else:
                known = adapt(self.loss)
                sample_weight = check_weights(sample_weight, tensors_of(x)[0], context)
                loss = known.weighted(output, known.prepare(output, y, context), sample_weight)
            value = loss.detach()
            if context.shard is not None:
                loss, value = self._summed(loss, output, y, sample_weight, context)
        with torch.autocast(value.device.type, enabled=False):
            loss.backward()
        moved = [p for p in self.model.parameters() if p.grad is not None]
        for p, grad in zip(moved, sum_tree([p.grad for p in moved], context), strict=True):
            p.grad = grad
        return value

    def _summed(
        self, loss: Tensor, output: Tensor, y: Tensor, w: Tensor | None, context: Context
    ) -> tuple[Tensor, Tensor]:
        """Return this rank's part of the mean loss over all ranks, and that mean."""
        known, detached = getattr(self.loss, "adapted", None) or adapt(self.loss), output.detach()
        terms = known.terms(detached, known.prepare(detached, y, context)) if w is None else w.sum().item()
        terms = 1.0 if known.adds else terms
        if not terms:  # the mean of no terms is NaN
            loss = 0 * output.sum()
        total, count = context.sum_numbers(loss.item() * terms, terms)
        part = loss if known.adds or not terms else loss * (terms / count)
        return part, loss.new_tensor(total if known.adds else total / count if count else torch.nan)

    def why_not_captured(self) -> str:
        """Return why a step cannot be captured as a CUDA graph; empty if it can."""
        if isinstance(self.optimizer, torch.optim.Adam | CoActivation) or self.optimizer.defaults.get("fused"):
            return ""
        name = type(self.optimizer).__name__
        if "fused" not in self.optimizer.defaults:
            return f"{name} reads numbers on the processor in its step; use adam with fused=True, or do without"
        return f"{name} is captured if it is fused; give it fused=True"


def parameter_groups(model: nn.Module, decay_biases: bool) -> list[Any]:
    """Return a model's parameters as an optimizer takes them: weight decay on all, or on weight matrices only."""
    return list(model.parameters()) if decay_biases else groups(model.parameters(), undecayed(model))


def _adam(kind: Any, model: nn.Module, decay_biases: bool, fused: bool, **numbers: float) -> torch.optim.Optimizer:
    recordable = fused and all(p.is_cuda for p in model.parameters())
    chosen: torch.optim.Optimizer = kind(
        parameter_groups(model, decay_biases), **numbers, fused=fused or None, capturable=recordable
    )
    return chosen


@register("adam")
def adam(
    model: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    loss: nn.Module | None = None,
    fused: bool = False,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Backprop:
    """Backprop with torch.optim.Adam. fused: one kernel updates all weights; on a GPU it can be recorded in a graph.

    clip_norm: the largest norm of all gradients together. decay_biases=False: weight decay on weight matrices only."""
    chosen = _adam(torch.optim.Adam, model, decay_biases, fused, lr=lr, weight_decay=weight_decay)
    return Backprop(model, chosen, loss, clip_norm)


@register("adamw")
def adamw(
    model: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.01,
    loss: nn.Module | None = None,
    fused: bool = False,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Backprop:
    """Backprop with torch.optim.AdamW, whose weight decay is decoupled. fused, clip_norm, decay_biases: as in `adam`.

    Loshchilov, Hutter 2019, "Decoupled Weight Decay Regularization"."""
    chosen = _adam(torch.optim.AdamW, model, decay_biases, fused, lr=lr, weight_decay=weight_decay)
    return Backprop(model, chosen, loss, clip_norm)


@register("sgd")
def sgd(
    model: nn.Module,
    lr: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    loss: nn.Module | None = None,
    fused: bool = False,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Backprop:
    """Backprop with torch.optim.SGD. fused: one kernel updates all weights. clip_norm, decay_biases: as in `adam`."""
    params = parameter_groups(model, decay_biases)
    chosen = torch.optim.SGD(params, lr, momentum=momentum, weight_decay=weight_decay, fused=fused or None)
    return Backprop(model, chosen, loss, clip_norm)
