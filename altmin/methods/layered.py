"""What methods for fully connected nets have in common: the model as layers, and the checks of their mini-batches."""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import own_call
from altmin.common.errors import Diverged
from altmin.common.state import demand_separate
from altmin.core.losses import Loss
from altmin.core.trainer import check, check_model


class Layer(NamedTuple):
    """a = activation(linear(x)); the last layer of a net has no activation (None)."""

    linear: nn.Linear
    activation: nn.Module | None

    @property
    def trained(self) -> bool:
        """Whether its weights may move."""
        return self.linear.weight.requires_grad


def layers_of(model: nn.Module, method: str, activations: Collection[type[nn.Module]]) -> list[Layer]:
    """A model of Linear layers with one of these activations between each two of them, after a Flatten or none.

    TypeError, which names the method, for any other model; ValueError for parameters that cannot be trained, and for a
    layer with only its weight or only its bias frozen.

    >>> layers_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), "admm", [nn.ReLU])
    [Layer(linear=Linear(in_features=4, out_features=3, bias=True), activation=ReLU()), \
Layer(linear=Linear(in_features=3, out_features=2, bias=True), activation=None)]
    """
    check_model(model)
    demand_separate(model.named_parameters())
    modules = [m for m in _flat(model, method) if not isinstance(m, nn.Identity)]
    modules = modules[1:] if modules and isinstance(modules[0], nn.Flatten) else modules
    names = ", ".join(sorted(kind.__name__ for kind in activations))
    expected = f"{method} trains Linear layers with an activation between each two of them ({names})"
    for m, kinds in zip(modules, [(nn.Linear,), tuple(activations)] * len(modules), strict=False):
        if type(m) not in kinds or own_call(m):
            raise TypeError(f"{expected}, given {type(m).__name__}{' with a hook' if own_call(m) else ''}")
    if len(modules) % 2 == 0:
        raise TypeError(f"{expected} and a Linear layer at the end, given {len(modules)} of them in a row")
    layers = [Layer(a, b) for a, b in zip(modules[::2], [*modules[1::2], None], strict=True)]  # type: ignore[arg-type]
    for l, layer in enumerate(layers):
        if len({p.requires_grad for p in layer.linear.parameters()}) > 1:
            raise ValueError(f"of layer {l} either weight and bias are frozen or none; {method} moves both at once")
    if len({layer.linear.weight for layer in layers}) < len(layers):
        raise ValueError(f"two layers share their weights, and {method} fits every layer by itself; give each its own")
    if not any(layer.trained for layer in layers):
        raise ValueError("all parameters are frozen: there is nothing to train")
    return layers


def _flat(model: nn.Module, method: str) -> list[nn.Module]:
    """The modules of a Sequential, and of those inside it, in order."""
    if type(model) is not nn.Sequential:
        return [model]
    if own_call(model):
        raise TypeError(f"{method} does not run the hooks or the forward of a Sequential's own; take them off")
    return [m for part in model for m in _flat(part, method)]


def check_batch(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> None:
    """TypeError or ValueError for a mini-batch that a fully connected model and its loss cannot take; nothing has
    changed then."""
    check(x, y)
    demand_finite(x, y)
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    features = x[0].numel() if any(isinstance(m, nn.Flatten) for m in model.modules()) else x.shape[-1]
    if features != linears[0].in_features or (x.ndim > 2 and features == x.shape[-1]):
        raise ValueError(
            f"samples of {tuple(x.shape[1:])} do not fit the first layer, which takes {linears[0].in_features} numbers"
        )
    output = torch.zeros(len(x), linears[-1].out_features, dtype=x.dtype, device=x.device)
    loss.prepare(output, y)
    loss.check(output, y)


def demand_finite(x: Tensor, y: Tensor) -> None:
    """ValueError for a mini-batch with numbers that are not finite."""
    for name, given in (("input holds", x), ("targets hold", y)):
        if not bool(given.sum().isfinite()) and not bool(given.isfinite().all()):  # the sum may overflow
            raise ValueError(f"the {name} NaN or infinite values; clean them before training (nothing was changed)")


def demand_unchanged(
    model: nn.Module, layers: Sequence[Layer] | None = None, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """ValueError if the model is no longer the one that a method was made for: its Linear layers are not those of
    `layers`, or it has parameters to train that are not the optimizer's."""
    known = {id(p) for group in optimizer.param_groups for p in group["params"]} if optimizer else set()
    changed = optimizer is not None and any(p.requires_grad and id(p) not in known for p in model.parameters())
    if layers is not None:
        linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
        changed = changed or [id(m) for m in linears] != [id(layer.linear) for layer in layers]
    if changed:
        raise ValueError(
            "the model has changed since the method was made: a module or parameter was replaced, added or freed; make "
            "a new method for it (nothing was changed)"
        )


def demand_step(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """`Diverged` unless the loss is finite, and a step of the optimizer along the gradients that are set leaves weights
    and squares of gradients finite. Waits for the device once."""
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    largest = max(1.0, *(float(group["lr"]) for group in optimizer.param_groups))
    value, *norms = torch.stack([loss, *torch._foreach_norm(grads)]).tolist()
    if not math.isfinite(value):
        raise Diverged("the loss")
    # a norm is infinite where a square of a gradient, as Adam takes it, would be
    if not all(norm * largest < torch.finfo(loss.dtype).max for norm in norms):
        raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")
