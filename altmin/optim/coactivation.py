"""The co-activation memory for people who keep backpropagation: a torch optimizer."""

import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from altmin.common.errors import demand
from altmin.core.weights.decay import groups, undecayed
from altmin.core.weights.layer_memory import MANY_ROWS, Layer, LayerMemory
from altmin.core.weights.local import count_up
from altmin.core.weights.memory import Row, checked, is_known, step_
from altmin.optim.recorder import MEASURED, Recorder, matrices, sum_over_ranks

ADAM, MEMORY = ("step", "exp_avg", "exp_avg_sq"), ("Y", "B", "scale", "K", "P")
"""Names in the state of every parameter, and further ones in that of weights with a memory."""
UNSEEN = (
    "CoActivation has seen no inputs of a layer, so all parameters take steps of Adam: the model calls no nn.Linear, "
    "convolution or recurrent layer, or another model is trained than it was given, or it was compiled and called "
    "before it got the optimizer (then call torch.compiler.reset())"
)


class CoActivation(torch.optim.Optimizer):
    """`CoActivationMemory` on the gradients of backpropagation: at `share=0` the two take the same steps.

        optimizer = altmin.optim.CoActivation(model, lr=0.004)
        loss_fn(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    Let the rate fall to 0 by a scheduler of torch's in runs of several epochs: at a constant one a net may fall back.
    The weights of linear layers, convolutions and recurrent layers have a memory of their inputs, which hooks take from
    every call that the loss is differentiated through; all other parameters, and weights that are shared or used
    without calling the layer, take steps of Adam.

    params: the model, or parameters or groups of them as for any optimizer; then `model` is the module that calls their
    layers. Other options as in `CoActivationMemory`; a group may have an "lr" and a "weight_decay" of its own,
    decay_biases acts where params is the model. Works with autocast, gradient accumulation, gradient checkpointing,
    schedulers, and, since every rank adds its inputs to those of the others in the default process group,
    `DistributedDataParallel`. `close` removes the hooks, as the end of the optimizer does. A copy of the model has
    none, unless it is made together with the optimizer.
    """

    kinds = 2
    only: int | None

    def __init__(  # noqa: PLR0913
        self,
        params: nn.Module | Iterable[Any],
        lr: float = 0.004,
        beta: float = 0.9,
        forget: float = 0.6,
        damping: float = 1.0,
        rank: int = 32,
        weight_decay: float = 0.0,
        decay_biases: bool = True,
        every: int = 40,
        rows: int = 100,
        model: nn.Module | None = None,
    ):
        of = "CoActivation"
        demand(of, "lr", lr)
        demand(of, "weight_decay", weight_decay)
        self.memory = checked(of, LayerMemory(forget, damping, rank, every), beta, rows)
        if isinstance(params, nn.Module):
            model, parameters = params, list(params.parameters())
            params = [{"params": parameters}] if decay_biases else groups(parameters, undecayed(model))
        if not isinstance(model, nn.Module):
            types = f"{type(params).__name__} " + ("alone" if model is None else f"and model={type(model).__name__}")
            raise TypeError(
                "CoActivation watches the inputs of a model's layers; give the model, CoActivation(model), or with its "
                f"parameters CoActivation(parameters, model=model), given {types}"
            )
        self.model, self.beta, self.rows, self.only, self.warned = model, beta, rows, None, False
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        tensors = {p for group in self.param_groups for p in group["params"]}
        if not any(p.requires_grad for p in tensors):
            raise ValueError("CoActivation got a model without parameters to train; unfreeze some of them")
        if tensors.isdisjoint(model.parameters()):
            raise ValueError(
                "CoActivation got parameters of which none belongs to its model; give that model's, "
                "CoActivation(model.parameters(), model=model)"
            )
        self.recorders: list[Recorder] = []
        weakref.finalize(self, _close, self.recorders)
        self._record()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train further parameters too; weights of layers that have come to the model get a memory."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["updates"] = self.param_groups[0].get("updates", 0)
        for p in group["params"]:
            _demand_whole(p)
        if "recorders" in vars(self):
            self._record()

    def _record(self) -> None:
        """Watch all layers of the model, those of other optimizers too: ranks that share the work have the same."""
        recorded = {id(recorder.p) for recorder in self.recorders}
        pairs = [(m, name) for m, name in matrices(self.model) if id(getattr(m, name)) not in recorded]
        self.recorders += [Recorder(m, name, self.memory, self.rows) for m, name in pairs]
        self._listen()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step along the gradients of all parameters that have one. closure: computes these and returns the
        loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        device = next(p for group in self.param_groups for p in group["params"]).device.type
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            self._step()
        self._listen()
        return loss

    @_disable_dynamo  # torch.compile refuses kernels that change in place what it has not traced
    def _step(self) -> None:
        recorders = {recorder.p: recorder for recorder in self.recorders if recorder.is_whole}
        due = self._is_due()
        news = self._measured() if due else {}
        rows, steps = [], []
        self.count += self.only is None
        for group in self.param_groups:
            lr, decay = group["lr"], group["weight_decay"]
            for p in group["params"]:
                g = p.grad
                if g is None:
                    continue
                state, recorder, new = self.state[p], recorders.get(p), news.get(p)
                if not state:
                    _demand_whole(p)
                    wide = torch.promote_types(p.dtype, torch.float32) if recorder else p.dtype
                    moments = {name: torch.zeros_like(p, dtype=wide) for name in ADAM[1:]}
                    state |= {"step": torch.zeros((), dtype=torch.float32, device=p.device), **moments}
                if recorder and new:
                    state |= {} if "Y" in state else self.memory.init(p, recorder.groups)
                    state["rows"] = new.pop("rows")
                    ok = is_known(new)
                    new = {name: torch.where(ok, t, state[name]) for name, t in new.items()}
                step, mean, square = (state[name] for name in ADAM)
                g = g.to_dense() if g.is_sparse else g
                many = state.get("rows", 0) >= MANY_ROWS
                layer = Layer(mean, g, state, new, many) if recorder and "Y" in state else None
                steps.append(step)
                rows.append(Row(p, g, step, mean, square, lr, decay, layer))
        if rows:
            if due and not self.warned and all(row.layer is None for row in rows):
                self.warned = True
                warnings.warn(UNSEEN, stacklevel=5)
            count_up(steps, None)
            step_(self.memory, self.beta, rows)

    @property
    def count(self) -> int:
        """The number of steps so far."""
        count: int = self.param_groups[0]["updates"]
        return count

    @count.setter
    def count(self, count: int) -> None:
        for group in self.param_groups:
            group["updates"] = count

    def kind(self, step: int) -> int:
        """Return 1 for a step, from 1, that refreshes the memories, 0 for any other."""
        return int(self.memory.is_due(step))

    @contextmanager
    def of_kind(self, kind: int) -> Iterator[None]:
        """Take only steps of one kind inside the context and count none, while they are recorded."""
        self.only = kind
        self._listen()
        try:
            yield
        finally:
            self.only = None
            self._listen()

    def _is_due(self) -> bool:
        """Return whether the next step refreshes the memories."""
        return bool(self.kind(self.count + 1) if self.only is None else self.only)

    def _listen(self) -> None:
        """Let hooks record calls if the next step needs them, and drop what they have recorded."""
        due = self._is_due()
        for recorder in self.recorders:
            recorder.listen(due)

    def _measured(self) -> dict[Tensor, dict[str, Any]]:
        """Return for each weight what its memory takes from the mini-batch, as means over the samples of all ranks of
        the default process group; nothing for layers that were not called."""
        sums = [recorder.sums or recorder.zeros() for recorder in self.recorders]
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and sums:
            sum_over_ranks(sums)
        measured: dict[Tensor, dict[str, Any]] = {}
        for recorder, total in zip(self.recorders, sums, strict=True):
            if total["samples"]:
                means = {name: total[name] / total["samples"] for name in MEASURED}
                measured[recorder.p] = {**means, "rows": total["rows"]}
        return measured

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset all gradients, and drop inputs that no step has used."""
        super().zero_grad(set_to_none)
        self._listen()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`. ValueError for that of another optimizer, or of other layers or another `rank`
        (nothing is changed then)."""
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = [i for group in state_dict["param_groups"] for i in group["params"]]
        saved = {p: state_dict["state"].get(i, {}) for p, i in zip(params, numbers, strict=False)}
        shapes = {r.p: {n: t.shape for n, t in self.memory.init(r.p, r.groups).items()} for r in self.recorders}
        fits = all("updates" in group for group in state_dict["param_groups"])
        for p, state in saved.items():
            memory = {name: t.shape for name, t in state.items() if name in MEMORY}
            valid = set(state) - {*MEMORY, "rows"} == set(ADAM) and state["exp_avg"].shape == p.shape
            fits &= not state or (valid and (not memory or memory == shapes.get(p)))
        if not fits:
            rank = f"for these layers with rank={self.memory.rank}"
            raise ValueError(f"this is not the state of a CoActivation {rank} (nothing was changed)")
        super().load_state_dict(state_dict)
        for p, state in saved.items():  # torch would round moments and memories, and leave the step where it was saved
            self.state[p].update({n: t.to(p.device, copy=True) for n, t in state.items() if isinstance(t, Tensor)})
        self._listen()

    def close(self) -> None:
        """Remove the hooks; layers go on with the memories that they have."""
        _close(self.recorders)

    def __repr__(self) -> str:
        """Return the options as torch's optimizers do, without the number of steps, in which runs do not differ."""
        return re.sub(r"\n +updates: \d+", "", super().__repr__())

    def __getstate__(self) -> dict[str, Any]:
        names = ("memory", "beta", "rows", "only", "warned", "model", "recorders")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        weakref.finalize(self, _close, self.recorders)
        self._listen()


def _demand_whole(p: Tensor) -> None:
    """Raise ValueError if p is a part of a matrix, or complex."""
    if hasattr(p, "placements") or hasattr(p, "_fsdp_flattened"):
        raise ValueError(
            "CoActivation needs whole matrices, of which FSDP (fully_shard) and tensor parallelism leave each rank a "
            "part; train with DistributedDataParallel, which ZeroRedundancyOptimizer(..., CoActivation, model=model) "
            "may join"
        )
    if p.is_complex():
        raise ValueError(f"CoActivation takes real parameters, given one of {p.dtype}; store its torch.view_as_real")


def _close(recorders: list[Any]) -> None:
    for recorder in recorders:
        recorder.listen(False)
        recorder.handle.remove()
