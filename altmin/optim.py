"""The co-activation memory for people who keep backpropagation: a torch optimizer."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus.context import LOCAL
from altmin.calculus.linear import Affine, Convolution, Linear
from altmin.core.weights.adam_sgd import adam
from altmin.core.weights.decay import groups, undecayed
from altmin.core.weights.layer_memory import Given, LayerMemory
from altmin.core.weights.memory import adam_coefficients, checked, inputs, moments, parted
from altmin.core.weights.rule import as_matrix

LAYERS: dict[type, type[Affine]] = {
    nn.Linear: Linear, nn.Conv1d: Convolution, nn.Conv2d: Convolution, nn.Conv3d: Convolution
}  # fmt: skip
ADAM = {"step", "exp_avg", "exp_avg_sq"}
"""The state of a parameter without a memory."""


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
        every: int = 10,
        rows: int = 100,
    ):
        if not isinstance(model, nn.Module):
            raise TypeError(f"CoActivation takes the model, not its parameters, given {type(model).__name__}")
        memory = LayerMemory(beta, forget, damping, length, rank, every)
        self.memory = checked("CoActivation", memory, lr, weight_decay, rows)
        parameters = list(model.parameters())
        if not any(p.requires_grad for p in parameters):
            raise ValueError("CoActivation got a model without parameters to train; unfreeze some of them")
        params = [{"params": parameters}] if decay_biases else groups(parameters, undecayed(model))
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.recorders = [Recorder(m, self.memory, rows) for m in _layers(model)]

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
        given = []
        for recorder, new in zip(self.recorders, contributions, strict=True):
            own = recorder.own
            known = new is not None or "A" in self.state.get(own[0], {})
            if known and recorder.whole and all(p.grad is not None for p in own):
                given.append((own, self._given(own, new, recorder.groups, rates[own[0]])))
        if given:
            changes |= self._solved(given)
        for p in (p for p in rates if p.grad is not None and p not in changes):
            grad, state = p.grad.to_dense() if p.grad.is_sparse else p.grad, self.state[p]
            state = state if "exp_avg" in state else {"step": _count(), **moments(p)}
            count = state["step"] + 1
            changes[p], m, v = adam(state["exp_avg"], state["exp_avg_sq"], grad, adam_coefficients(count, rates[p]))
            self.state[p] = {"step": count, "exp_avg": m, "exp_avg_sq": v}
        for group in self.param_groups:
            for p in (p for p in group["params"] if p in changes):
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(changes[p])
        return loss

    def _given(self, own: list[Any], new: Any, groups: int, lr: Any) -> Given:
        """What the update of one layer depends on."""
        state = self.state[own[0]]
        state = dict(state) if "A" in state else {"step": _count(), **self.memory.init(as_matrix(own), groups)}
        count = state.pop("step") + 1
        new = new or {name: state[name] for name in ("A", "scale")}
        return Given(state, new, as_matrix([p.grad for p in own]), count, lr, self.memory.is_due(int(count)))

    def _solved(self, given: list[tuple[list[Any], Given]]) -> dict[Tensor, Tensor]:
        """The changes of the layers' parameters."""
        changes: dict[Tensor, Tensor] = {}
        with torch.autocast(given[0][0][0].device.type, enabled=False):
            found = self.memory.update([each for _, each in given])
        for (own, each), (change, after) in zip(given, found, strict=True):
            self.state[own[0]] = {"step": each.steps, **after}
            changes |= dict(zip(own, parted(change, own), strict=True))
        return changes

    def _averaged(self, contributions: list[Any]) -> list[Any]:
        """The means over those ranks of the default process group that have called a layer, all in one message for each
        type."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return contributions
        parts = []
        for recorder, new in zip(self.recorders, contributions, strict=True):
            zero = {} if new else self.memory.init(as_matrix(recorder.own), recorder.groups)
            found = new or {name: zero[name] for name in ("A", "scale")}
            parts.append({**found, "ranks": found["A"].new_full((), float(new is not None))})
        leaves, form = pytree.tree_flatten(parts)
        for kind in sorted({t.dtype for t in leaves}, key=str):
            mine = [i for i, t in enumerate(leaves) if t.dtype == kind]
            flat = torch.cat([leaves[i].reshape(-1) for i in mine])
            dist.all_reduce(flat)
            for i, part in zip(mine, flat.split([leaves[i].numel() for i in mine]), strict=True):
                leaves[i] = part.view_as(leaves[i])
        parts = pytree.tree_unflatten(leaves, form)
        counts = torch.stack([part.pop("ranks").double() for part in parts]).tolist() if parts else []
        return [
            {name: t / ranks for name, t in part.items()} if ranks else None
            for part, ranks in zip(parts, counts, strict=True)
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gradients, and inputs that no step has used."""
        super().zero_grad(set_to_none)
        for recorder in self.recorders:
            recorder.take()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a `state_dict`. ValueError for that of another optimizer, or of other layers, `rank` or
        `length` (nothing is changed then)."""
        params = [p for group in self.param_groups for p in group["params"]]
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        given = {p: state_dict["state"].get(i, {}) for p, i in zip(params, saved, strict=False)}
        memories = {r.own[0]: self.memory.init(as_matrix(r.own), r.groups) for r in self.recorders}
        for p, state in given.items():
            shapes = {name: t.shape for name, t in memories.get(p, {}).items()}
            fits = {n: t.shape for n, t in state.items() if n != "step"} == shapes if shapes else set(state) == ADAM
            if state and not fits:
                raise ValueError(
                    "this is not the state of a CoActivation for these layers with "
                    f"rank={self.memory.rank} and length={self.memory.length!r} (nothing was changed)"
                )
        super().load_state_dict(state_dict)
        for p, state in given.items():  # torch would round memories to the type of the weights
            if "A" in state:
                kept = {name: t.to(memories[p]["A"], copy=True) for name, t in state.items() if name != "step"}
                self.state[p] = {"step": self.state[p]["step"], **kept}

    def close(self) -> None:
        """Removes the hooks; layers go on with the memories that they have."""
        for recorder in self.recorders:
            recorder.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "memory": self.memory, "recorders": self.recorders}


def _count() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


class Recorder:
    """The hook of one layer: what its memory takes from its inputs since the last step. A copy of it records
    nothing."""

    def __init__(self, module: Any, memory: LayerMemory, rows: int):
        self.module, self.memory, self.rows, self.map = module, memory, rows, LAYERS[type(module)](module)
        self.own: list[Any] = [p for p in (module.weight, module.bias) if p is not None]
        self.groups, self.dims = getattr(module, "groups", 1), module.weight.ndim
        self.sum: dict[str, Tensor] | None = None
        self.calls, self.pass_ = 0, -1
        self.handle = module.register_forward_hook(self, with_kwargs=True)

    @property
    def whole(self) -> bool:
        """True if the layer still has its parameters, and trains all of them."""
        now = getattr(self.module, "weight", None), getattr(self.module, "bias", None)
        return [id(p) for p in now if p is not None] == [*map(id, self.own)] and all(p.requires_grad for p in self.own)

    @torch.compiler.disable
    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        if output.requires_grad and self.whole:
            x = (*args, *kwargs.values())[0].detach()
            output.register_hook(lambda _: self.record(x))

    def record(self, x: Tensor) -> None:
        """Adds one call with inputs x. If the model has forgotten the gradients of earlier passes, so does this."""
        now = torch._C._current_graph_task_id()
        if now != self.pass_ and self.own[0].grad is None:
            self.take()
        self.pass_ = now
        with torch.no_grad(), torch.autocast(self.own[0].device.type, enabled=False):
            x = x.to(self.own[0].dtype)
            x = x.unsqueeze(0) if x.ndim < self.dims else x
            a, _, times = inputs(self.map, x, LOCAL, self.rows)
            new = self.memory.measure(a, times / max(1, len(x)))
        self.sum = new if self.sum is None else {name: self.sum[name] + new[name] for name in new}
        self.calls += 1

    def take(self) -> dict[str, Tensor] | None:
        """The mean over calls since the last time, None if there were none."""
        found, calls = self.sum, self.calls
        self.sum, self.calls = None, 0
        return found and {name: t / calls for name, t in found.items()}

    def close(self) -> None:
        """Records no further calls."""
        self.handle.remove()

    def __reduce__(self) -> Any:
        return _nothing, ()


class _Nothing:
    """The hook of a copied model."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        """Records nothing."""

    def take(self) -> Any:
        """RuntimeError: a copied optimizer cannot go on."""
        raise RuntimeError(
            "a copy of CoActivation records no inputs; make a new one from the copied model, and give it the "
            "state_dict() of the first"
        )

    def close(self) -> None:
        """There is no hook."""


def _nothing() -> _Nothing:
    return _Nothing()


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers that may have a memory: their parameters belong to no other module, and are one matrix (for each
    group). Hooks of others do not matter here, as for a `map_of` the layer."""
    owners: dict[int, int] = {}
    for m in model.modules():
        for p in m.parameters(recurse=False):
            owners[id(p)] = owners.get(id(p), 0) + 1
    return [
        m
        for m in model.modules()
        if type(m) in LAYERS
        and "forward" not in vars(m)
        and (getattr(m, "padding_mode", "zeros"), getattr(m, "padding", 0) == "same") == ("zeros", False)
        and Affine.fits(m)
        and all(owners[id(p)] == 1 for p in m.parameters(recurse=False))
    ]
