"""The co-activation memory for people who keep backpropagation: a torch optimizer."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus import map_of
from altmin.calculus.context import LOCAL
from altmin.core.weights.decay import groups, undecayed
from altmin.core.weights.layer_memory import LayerMemory
from altmin.core.weights.memory import adam_step, check_options, inputs, layer_memory, parted
from altmin.core.weights.rule import as_matrix

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class CoActivation(torch.optim.Optimizer):
    """`CoActivationMemory` on the gradients of backpropagation: at `share=0` the two take the same steps.

        optimizer = altmin.optim.CoActivation(model, lr=0.004)
        loss_fn(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    Linear layers and convolutions have a memory of their inputs, which hooks take from every call that the loss is
    differentiated through; all other parameters, and layers whose weights are shared or used without calling the layer,
    take steps of Adam. Options as in `CoActivationMemory`. Works with autocast, gradient accumulation,
    schedulers, and, since every rank averages its memory with the others of the default process group,
    `DistributedDataParallel`. `close` removes the hooks; a copy of the model has none.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: nn.Module,
        lr: float = 0.004,
        beta: float = 0.9,
        forget: float = 0.95,
        damping: float = 1.0,
        length: str = "adam",
        rank: int = 32,
        weight_decay: float = 0.0,
        decay_biases: bool = True,
    ):
        if not isinstance(model, nn.Module):
            raise TypeError(f"CoActivation takes the model, not its parameters, given {type(model).__name__}")
        check_options("CoActivation", lr, weight_decay, decay_biases)
        self.memory = layer_memory("CoActivation", beta, forget, damping, length, rank)
        trained = [p for p in model.parameters() if p.requires_grad]
        if not trained:
            raise ValueError("CoActivation got a model without parameters to train; unfreeze some of them")
        params = [{"params": trained}] if decay_biases else groups(trained, undecayed(model))
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.recorders = [Recorder(m, self.memory) for m in _layers(model)]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step along the gradients of all parameters that have one. closure: computes these and returns the
        loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        contributions = self._averaged([recorder.take() for recorder in self.recorders])
        changes: dict[Tensor, Tensor] = {}
        rates = {p: group["lr"] for group in self.param_groups for p in group["params"]}
        for recorder, new in zip(self.recorders, contributions, strict=True):
            own = list(recorder.module.parameters())
            if all(p.grad is not None for p in own) and (new is not None or "A" in self.state[own[0]]):
                changes |= self._solved(own, new, recorder.groups, rates[own[0]])
        for p in (p for p in rates if p.grad is not None and p not in changes):
            grad, state = p.grad.to_dense() if p.grad.is_sparse else p.grad, self.state[p]
            state = state or {"step": _count(), "mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
            count = state["step"] + 1
            changes[p], after = adam_step(state, grad, count, rates[p])
            self.state[p] = {"step": count, **after}
        for group in self.param_groups:
            for p in (p for p in group["params"] if p in changes):
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(changes[p])
        return loss

    def _solved(self, own: list[Any], new: Any, groups: int, lr: Any) -> dict[Tensor, Tensor]:
        """The changes of one layer's parameters."""
        state = self.state[own[0]]
        state = state or {"step": _count(), **self.memory.init(as_matrix(own), groups)}
        count = state["step"] + 1
        new = new or {name: state[name] for name in ("A", "scale")}
        change, after = self.memory.update(state, new, as_matrix([p.grad for p in own]), count, lr)
        self.state[own[0]] = {"step": count, **after}
        return dict(zip(own, parted(change, own), strict=True))

    def _averaged(self, contributions: list[Any]) -> list[Any]:
        """The means over the ranks of the default process group, all in one message for each type."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return contributions
        leaves, form = pytree.tree_flatten(contributions)
        for kind in sorted({t.dtype for t in leaves if t is not None}, key=str):
            mine = [i for i, t in enumerate(leaves) if t is not None and t.dtype == kind]
            flat = torch.cat([leaves[i].reshape(-1) for i in mine])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            for i, part in zip(mine, flat.split([leaves[i].numel() for i in mine]), strict=True):
                leaves[i] = part.view_as(leaves[i])
        return pytree.tree_unflatten(leaves, form)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gradients, and inputs that no step has used."""
        super().zero_grad(set_to_none)
        for recorder in self.recorders:
            recorder.take()

    def close(self) -> None:
        """Removes the hooks; layers go on with the memories that they have."""
        for recorder in self.recorders:
            recorder.handle.remove()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "memory": self.memory, "recorders": self.recorders}


def _count() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


class Recorder:
    """The hook of one layer: what its memory takes from its inputs since the last step. A copy of it records
    nothing."""

    def __init__(self, module: Any, memory: LayerMemory):
        self.module, self.memory, self.map = module, memory, map_of(module)
        self.groups, self.dims = getattr(module, "groups", 1), module.weight.ndim
        self.sum: dict[str, Tensor] | None = None
        self.calls = 0
        self.handle = module.register_forward_hook(self)

    @torch.compiler.disable
    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad:
            x = args[0].detach()
            output.register_hook(lambda _: self.record(x))

    def record(self, x: Tensor) -> None:
        """Adds one call with inputs x."""
        with torch.no_grad(), torch.autocast(self.module.weight.device.type, enabled=False):
            x = x.to(self.module.weight.dtype)
            x = x.unsqueeze(0) if x.ndim < self.dims else x
            a, _, times = inputs(self.map, x, LOCAL)
            new = self.memory.measure(a, times / max(1, len(x)))
        self.sum = new if self.sum is None else {name: self.sum[name] + new[name] for name in new}
        self.calls += 1

    def take(self) -> dict[str, Tensor] | None:
        """The mean over calls since the last time, None if there were none."""
        found, calls = self.sum, self.calls
        self.sum, self.calls = None, 0
        return found and {name: t / calls for name, t in found.items()}

    def __reduce__(self) -> Any:
        return _nothing, ()


class _Nothing:
    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> None:
        """The hook of a copied model."""


def _nothing() -> _Nothing:
    return _Nothing()


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers that have a memory: their parameters are trained, and belong to no other module."""
    owners: dict[int, int] = {}
    for m in model.modules():
        for p in m.parameters(recurse=False):
            owners[id(p)] = owners.get(id(p), 0) + 1
    return [
        m
        for m in model.modules()
        if type(m) in LAYERS
        and getattr(map_of(m), "is_linear", False)
        and isinstance(m.weight, nn.Parameter)
        and all(p.requires_grad and owners[id(p)] == 1 for p in m.parameters(recurse=False))
    ]
