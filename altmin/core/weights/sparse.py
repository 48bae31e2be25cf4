"""Tables with sparse gradients: only the rows that occur in a mini-batch have a gradient.

An `nn.Embedding` or `nn.EmbeddingBag` made with sparse=True may have millions of rows. Its gradient is a sparse COO
tensor and stays one on its way to the optimizer, which moves those rows alone.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Optimizer, SparseAdam
from torch.optim._functional import sparse_adam

TAKE_SPARSE = (SGD, Adagrad, SparseAdam)
"""Those of torch's optimizers that take sparse gradients."""
ROWS_ARE_COUNTED = "the processor counts the rows of a sparse gradient, and their number differs between mini-batches"
NOT_SPARSE = "make the table with sparse=False"


def tables(model: nn.Module) -> list[Tensor]:
    """The parameters of a model whose gradients are sparse."""
    return [m.weight for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse]


def as_gradient(grad: Tensor, p: Tensor, sparse: bool) -> Tensor:
    """A gradient as an optimizer takes it: for a table sparse and coalesced, for other parameters with the memory
    layout of the parameter, which fused kernels require."""
    if sparse:
        return (grad if grad.is_sparse else grad.to_sparse(1)).coalesce()
    grad = grad.to_dense() if grad.is_sparse else grad
    return grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)


def entries(grad: Tensor) -> Tensor:
    """The values of a gradient; for a coalesced sparse one the values of its rows, in the same memory."""
    return grad._values() if grad.is_sparse else grad


def clip(grads: Sequence[Tensor], largest: float) -> None:
    """Scales gradients so that their total norm is at most `largest`, as `clip_grad_norm_` does."""
    values = [entries(grad) for grad in grads]
    factor = (largest / (torch.nn.utils.get_total_norm(values) + 1e-6)).clamp_max(1.0)
    if values:  # otherwise everything is frozen
        torch._foreach_mul_(values, factor)


def check_optimizer(optimizer: Optimizer, table_ids: Collection[int], l1: float, of: str) -> None:
    """ValueError if an optimizer cannot step along the gradients of trained tables, whose ids are given, and of the
    other parameters. l1: of the weight rule, whose name is `of`."""
    trained = [(p, group) for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    held = [group for p, group in trained if id(p) in table_ids]
    name = type(optimizer).__name__
    if isinstance(optimizer, SparseAdam) and len(held) < len(trained):
        raise ValueError(
            "SparseAdam takes sparse gradients alone, and other parameters than embeddings with sparse=True are "
            "trained too; use altmin.LocalAdam, which does for such tables what SparseAdam does"
        )
    if not held:
        return
    if type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, TAKE_SPARSE):
        raise ValueError(
            f"{name} does not take the sparse gradients of an embedding with sparse=True; use altmin.LocalAdam or "
            f"altmin.LocalSGD, or {NOT_SPARSE}"
        )
    for option, value in (("l1", l1), ("weight_decay", max(group.get("weight_decay", 0.0) for group in held))):
        if value:
            raise ValueError(
                f"{option} of {of} shrinks every row of a table, and with sparse=True a step moves only those that "
                f"occur; give {option}=0, or {NOT_SPARSE}"
            )


def step_rows(group: dict[str, Any], params: Sequence[Tensor], states: Sequence[dict[str, Tensor]]) -> None:
    """SparseAdam's step for tables: the moments of the rows that occur, and these rows, as Adam has them. states: with
    the number of steps up to this one."""
    sparse_adam(
        list(params),
        [p.grad for p in params if p.grad is not None],
        [s["exp_avg"] for s in states],
        [s["exp_avg_sq"] for s in states],
        [int(s["step"]) for s in states],
        eps=group["eps"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=float(group["lr"]),
        maximize=False,
    )
