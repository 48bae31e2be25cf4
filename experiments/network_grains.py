"""How finely a net is cut: the names that `altmin.split(model, at=...)` is given."""

from collections.abc import Sequence

from torch import nn

import altmin
from altmin.models.gpt import Perceptron
from altmin.models.resnet import BasicBlock

GRAINS = ("one block", "stage", "residual", "affine")
"""No cut, which is backprop; after each stage of a ResNet or each layer of a GPT; after each residual block or
sub-layer, the default of `split`; and after every affine map, those inside branches too."""


class CannotCut(ValueError):
    """The library takes no cut of this grain, which is no failure of the run."""


def cuts(model: nn.Sequential, grain: str) -> tuple[list[str] | None, list[str]]:
    """The names to cut at (None: the library's own choice), and those of this grain that it refuses.

    `CannotCut` if it refuses all that lie inside of branches.
    """
    if grain not in GRAINS:
        raise ValueError(f"there is no grain {grain!r}; the grains are: {', '.join(GRAINS)}")
    if grain == "residual":
        return None, []
    if grain == "one block":
        return [], []
    if grain == "stage":
        return stages(model), []
    wanted = affine(model)
    if accepts(model, wanted):
        return wanted, []
    taken = [name for name in wanted if accepts(model, [name])]
    refused = [name for name in wanted if name not in taken]
    if not any("." in name for name in taken) or not accepts(model, taken):
        raise CannotCut(f"this version of altmin does not cut inside branches, such as after {refused[0]!r}")
    return taken, refused


def stages(model: nn.Sequential) -> list[str]:
    """Of a ResNet the last block of each resolution, of a GPT the second sub-layer of each layer."""
    names, modules = list(model._modules), [*model.children(), None]
    found = []
    for name, module, after in zip(names, modules, modules[1:], strict=False):
        goes_on = isinstance(after, BasicBlock) and after.conv1.stride == (1, 1)
        if isinstance(module, Perceptron) or (isinstance(module, BasicBlock) and not goes_on):
            found.append(name)
    return found


def affine(model: nn.Sequential) -> list[str]:
    """After every affine map but the last, or after the batch norm that follows it. Embeddings that are added count as
    one map, the module that adds them."""
    leaves = [(name, module) for name, module in model.named_modules() if not any(True for _ in module.children())]
    found: list[str] = []
    for i, (name, module) in enumerate(leaves):
        if isinstance(module, nn.Conv2d | nn.Linear):
            follows = i + 1 < len(leaves) and isinstance(leaves[i + 1][1], nn.BatchNorm2d)
            found.append(leaves[i + 1][0] if follows else name)
        elif isinstance(module, nn.Embedding):
            found.append(name.rpartition(".")[0] or name)
    return list(dict.fromkeys(found))[:-1]


def accepts(model: nn.Module, at: Sequence[str]) -> bool:
    try:
        altmin.split(model, at)
    except ValueError:
        return False
    return True
