"""A fully connected net as layers, for methods that train nothing else."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from altmin.calculus import own_call
from altmin.common.state import demand_separate
from altmin.core.trainer import check, check_model
from altmin.methods.base import demand_finite


class Layer(NamedTuple):
    """Layer a = activation(linear(x)); the last layer of a net has no activation (None)."""

    linear: nn.Linear
    activation: nn.Module | None

    @property
    def trained(self) -> bool:
        """Return whether its weights may move."""
        return self.linear.weight.requires_grad


def layers_of(model: nn.Module, method: str, activations: Collection[type[nn.Module]]) -> list[Layer]:
    """Return the layers of a model: Linear ones with one of these activations between them, after a Flatten or none.

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
    kinds = [(nn.Linear,), tuple(activations)] * len(modules)
    if len(modules) % 2 == 0 or any(type(m) not in k or own_call(m) for m, k in zip(modules, kinds, strict=False)):
        names = ", ".join(sorted(kind.__name__ for kind in activations))
        raise TypeError(
            f"{method} trains Linear layers with an activation between each two of them ({names}), without hooks, "
            f"given {[type(m).__name__ for m in modules]}"
        )
    layers = [Layer(a, b) for a, b in zip(modules[::2], [*modules[1::2], None], strict=True)]  # type: ignore[arg-type]
    if any(len({p.requires_grad for p in layer.linear.parameters()}) > 1 for layer in layers):
        raise ValueError(f"either weight and bias of a layer are frozen or none; {method} moves both at once")
    if len({layer.linear.weight for layer in layers}) < len(layers):
        raise ValueError(f"two layers share their weights, and {method} fits every layer by itself; give each its own")
    if not any(layer.trained for layer in layers):
        raise ValueError("all parameters are frozen: there is nothing to train")
    return layers


def _flat(model: nn.Module, method: str) -> list[nn.Module]:
    """Return the modules of a Sequential, and of those inside it, in order."""
    if type(model) is not nn.Sequential:
        return [model]
    if own_call(model):
        raise TypeError(f"{method} does not run the hooks or the forward of a Sequential's own; take them off")
    return [m for part in model for m in _flat(part, method)]


def check_batch(layers: Sequence[Layer], model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Raise TypeError or ValueError for a mini-batch that cannot be, and for a model whose Linear layers have been
    replaced since `layers_of`."""
    check(x, y)
    demand_finite(x, y)
    if [id(m) for m in model.modules() if isinstance(m, nn.Linear)] != [id(layer.linear) for layer in layers]:
        raise ValueError("layers of the model were replaced; make a new method for it (nothing was changed)")
