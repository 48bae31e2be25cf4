"""What several sites have gathered, added up from files: weights are fitted to samples that no one site has seen.

While the weights W stay the same, what `AltMin.gather` keeps of a block are sums over samples: of a block with a memory

    A = sum_t a_t a_t^T,   R = sum_t (c_t - W a_t) a_t^T,

of one with an optimizer its gradients, of another rule its contributions. So the sum over sites that have the same W is
what one site would have gathered from all their parts, and its step gives the weights of that site. A file holds these
sums and no sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.common.describe import describe, digest, kind
from altmin.common.errors import Diverged
from altmin.core.trainer import AltMin
from altmin.core.weights.fitted_memory import FittedMemory
from altmin.training import checkpoint

KIND = "altmin memories 2"
SAME = {
    "network": "networks",
    "settings": "settings",
    "mu": "values of mu",
    "weights": "digests of the weights",
    "earlier": "digests of earlier memories and of the optimizer's state",
}
"""What must be the same for sums to be of one problem, and how an error message calls it."""


@dataclass(frozen=True)
class SiteMemories:
    """What one or more sites have gathered with the same weights.

    about: what they belong to: the network (kinds of its parameters by name), the settings of the trainer, mu, digests
    of the weights and of what earlier rounds have left, and what a fit needs; and the number of samples. gathered: by
    block the sum of its contributions times their samples.
    """

    about: dict[str, Any]
    gathered: dict[int, Any]

    def save(self, path: str | Path) -> None:
        """Writes a safetensors file, whole or not at all."""
        checkpoint.save(path, {"kind": KIND, "about": self.about, "gathered": self.gathered})

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.about["samples"])

    def __add__(self, other: "SiteMemories") -> "SiteMemories":
        """The sums of both. They belong to the same weights, which `merge_memories` checks."""
        gathered = {l: pytree.tree_map(torch.add, one, other.gathered[l]) for l, one in self.gathered.items()}
        return SiteMemories({**self.about, "samples": self.samples + other.samples}, gathered)


def save_memories(method: AltMin, path: str | Path) -> None:
    """Writes what `method.gather` has gathered since the weights last moved as a safetensors file, whole or not at all.

    ValueError if the method is not an `AltMin`, has gathered nothing, or trains batch norm, whose statistics are of the
    parts of one site. Nothing of the method changes.
    """
    about = _about(method)
    if not method.updates.gathered:
        raise ValueError("the method has gathered nothing to save; call method.gather(x, y) first")
    for name, module in method.model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            raise ValueError(
                f"{name} is a batch norm, whose statistics are of each site's own parts and do not add up; "
                "keep them fixed with its .eval(), or use a norm within samples"
            )
    SiteMemories({**about, "samples": method.updates.samples}, dict(method.updates.gathered)).save(path)


def load_memories(path: str | Path) -> SiteMemories:
    """What `save_memories` or `SiteMemories.save` wrote; ValueError for a file that is damaged or of another kind."""
    state = checkpoint.load(path)
    if state.get("kind") != KIND:
        raise ValueError(f"{path} holds no memories of a site, but another state; write it with save_memories")
    return SiteMemories(state["about"], state["gathered"])


def merge_memories(paths: Sequence[str | Path]) -> SiteMemories:
    """The sum over files. ValueError unless all belong to the same network, settings, mu, weights and earlier state,
    and no two are the same."""
    if not paths:
        raise ValueError("no file was given to add up; name those that the sites have written")
    whole = load_memories(paths[0])
    seen = {_content(whole): paths[0]}
    for path in paths[1:]:
        part = load_memories(path)
        _demand_same(path, part.about, paths[0], whole.about)
        content = _content(part)
        if content in seen:
            raise ValueError(f"{path} holds the same sums as {seen[content]}, which would count twice; give it once")
        seen[content] = path
        whole = whole + part
    return whole


def apply_memories(method: AltMin, merged: SiteMemories | str | Path) -> None:
    """The weight step of what all sites have gathered, as `method.apply` makes it of one's own: weights, memory, the
    optimizer's state and mu move on.

    What the method itself has gathered is dropped: it is in the sum, if its file was. ValueError, and nothing changes,
    unless the sums belong to the method's present weights. `Diverged`, and weights stay, if they would not be finite.
    """
    sums, name = (merged, "the memory") if isinstance(merged, SiteMemories) else (load_memories(merged), merged)
    _demand_same(name, sums.about, "the method", _about(method))
    state = method.updates.state_dict()
    method.updates.load_state_dict({**state, "gathered": sums.gathered, "samples": sums.samples})
    method.apply()


def fitted_weights(merged: SiteMemories, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`weights`, a model's `state_dict`, with the blocks that have a memory fitted to it; all else as it was.

    The other blocks, the output's among them, need their optimizer, which `apply_memories` has. ValueError unless the
    sums belong to these weights and to a first round: memories of earlier ones are at the sites. Nothing given changes.
    """
    about = merged.about
    for name, what in about["network"].items():
        if name not in weights or kind(weights[name]) != what:
            there = kind(weights[name]) if name in weights else "absent"
            raise ValueError(f"the sites' network has {name}, {what}; in the model it is {there}")
    if digest(*(weights[name] for name in about["network"])) != about["weights"]:
        raise ValueError("the model has other weights than the sites had when they gathered; give their first ones")
    if about["remembers"]:
        raise ValueError("the sites remember earlier rounds, which files do not hold; use apply_memories at a site")
    if about["fit"] is None:
        raise ValueError("the sites have no FittedMemory; apply the sum at a site, with apply_memories")
    rule, result = FittedMemory(**about["fit"]), dict(weights)
    for l, names in about["fitted"].items():
        means = pytree.tree_map(lambda t: t / merged.samples, merged.gathered[l])
        state = {"A": torch.zeros_like(means["A"]), "R": torch.zeros_like(means["R"]), "samples": torch.zeros(())}
        changes, _ = rule.update([weights[name] for name in names], state, means, merged.samples, {})
        if not all(bool(change.isfinite().all()) for change in changes):
            raise Diverged(f"the memory of block {l}", "give inputs of a smaller size")
        for name, change in zip(names, changes, strict=True):
            result[name] = weights[name] + change
    return result


def _about(method: AltMin) -> dict[str, Any]:
    """What the sums of a method belong to, in its present state."""
    if not isinstance(method, AltMin):
        raise ValueError(f"sums of sites need an altmin.AltMin(...), given {method!r}")
    if method.code_states:
        kept = f"{type(method.codes).__name__} keeps a state that each site changes by its own samples"
        raise ValueError(f"{kept}; give a code solver without one")
    rule, updates, parameters = method.weights, method.updates, dict(method.model.named_parameters())
    names = {id(p): name for name, p in parameters.items()}
    optimizer = {} if updates.optimizer is None else updates.optimizer.state_dict()
    return {
        "network": {name: kind(p) for name, p in parameters.items()},
        "settings": describe(method),
        "mu": float(method.penalty.value),
        "weights": digest(*parameters.values()),
        "earlier": digest(*_tensors([updates.states, optimizer])),
        "remembers": any(bool(t.any()) for t in pytree.tree_leaves(updates.states)),
        "fitted": {l: [names[id(p)] for p in method.theta[l]] for l in updates.states},
        "fit": {"damping": rule.damping, "sweeps": rule.sweeps, "steps": rule.steps}
        if isinstance(rule, FittedMemory)
        else None,
    }


def _demand_same(path: Any, there: Mapping[str, Any], other: Any, here: Mapping[str, Any]) -> None:
    for key, name in SAME.items():
        if there[key] != here[key]:
            a, b = checkpoint.apart(str(there[key]), str(here[key]))
            raise ValueError(
                f"{path} does not belong with {other}: the {name} differ, {a} and {b}; all sites must begin a round "
                "with the same state"
            )


def _content(sums: SiteMemories) -> str:
    return digest(*_tensors(sums.gathered))


def _tensors(value: Any) -> list[Tensor]:
    """All tensors in nested dicts, lists and tuples, in their order; numbers as tensors."""
    leaves = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor | float | int)]
    tensors = [leaf if isinstance(leaf, Tensor) else torch.tensor(float(leaf)).double() for leaf in leaves]
    return [t.to_dense() if t.is_sparse else t for t in tensors]
