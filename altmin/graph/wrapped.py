"""Models that torch has wrapped or compiled, whose forward cannot be cut and whose parameters cannot be replaced."""

import torch
from torch import nn


def demand_unwrapped(model: nn.Module) -> None:
    """ValueError for a model that is compiled as a whole, or that holds a scripted module or a DataParallel. A compiled
    module inside a model is one block."""
    if "_orig_mod" in model._modules:  # the type is imported by torch.compile alone, which takes seconds
        raise ValueError("the model was compiled as a whole; give the one before torch.compile, model._orig_mod")
    for name, module in model.named_modules():
        what = f"the module {name!r}" if name else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{what} was compiled by torch.jit, and its parameters cannot be replaced; give the one before "
                "torch.jit.script or torch.jit.trace"
            )
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise ValueError(
                f"{what} is a {type(module).__name__}, which cannot be cut into blocks; give the module inside it "
                "(.module), and altmin.Distributed for several processes"
            )
