"""The parameters that are exempt if weight decay acts on weight matrices only: biases, and those of normalisation."""

from collections.abc import Collection, Iterable
from typing import Any

from torch import Tensor, nn

NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


def undecayed(model: nn.Module) -> set[int]:
    """Return ids of parameters that are not weight matrices: those with at most one dimension, named as a bias,
    or of a normalisation, whatever their shape.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm((2, 3)))
    >>> [name for name, p in net.named_parameters() if id(p) in undecayed(net)]
    ['0.bias', '1.weight', '1.bias']
    """
    exempt = {id(p) for m in model.modules() if isinstance(m, NORMALISATIONS) for p in m.parameters(recurse=False)}
    for name, p in model.named_parameters(remove_duplicate=False):
        if p.ndim <= 1 or name.rpartition(".")[2].startswith("bias"):
            exempt.add(id(p))
    return exempt


def groups(parameters: Iterable[Tensor], spared: Collection[int]) -> list[dict[str, Any]]:
    """Return an optimizer's groups: all parameters, but those with ids in `spared` in a group with weight decay 0."""
    tensors = list(parameters)
    decayed, others = ([p for p in tensors if (id(p) in spared) is exempt] for exempt in (False, True))
    return [{"params": decayed}] * bool(decayed) + [{"params": others, "weight_decay": 0.0}] * bool(others)
