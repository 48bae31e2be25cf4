"""Training without the first layer: the control for what training that layer is worth."""

from torch import nn


def freeze_first(model: nn.Module) -> None:
    """Set `requires_grad` to False for the parameters of the first module of `model` that has any of its own.

    Raises ValueError if no module has.
    """
    for module in model.modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.requires_grad_(False)
            return
    raise ValueError(f"{type(model).__name__} has no parameters, so no first layer to freeze")
