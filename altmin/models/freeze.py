"""Freezing the first layer, or all but the last: controls for the benefit of training them."""

from torch import nn


def freeze_first(model: nn.Module) -> None:
    """Set `requires_grad` to False for the parameters of the first module of `model` that has any of its own.

    Raises ValueError if no module has.
    """
    _layers(model, "first layer")[0].requires_grad_(False)


def freeze_hidden(model: nn.Module) -> None:
    """Set `requires_grad` to False for all parameters but those of the last module of `model` that has any of its own.

    Raises ValueError if no module has.
    """
    for layer in _layers(model, "hidden layers")[:-1]:
        layer.requires_grad_(False)


def _layers(model: nn.Module, wanted: str) -> list[nn.Module]:
    """The modules that have parameters of their own."""
    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters, so no {wanted} to freeze")
    return layers
