"""The co-activation memory for people who keep backpropagation: a torch optimizer."""

import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn.utils.rnn import PackedSequence

from altmin.calculus.context import LOCAL
from altmin.calculus.linear import Affine, Convolution, Linear
from altmin.common.errors import demand
from altmin.common.state import all_finite
from altmin.core.weights.decay import groups, undecayed
from altmin.core.weights.layer_memory import MANY_ROWS, Layer, LayerMemory
from altmin.core.weights.local import count_up
from altmin.core.weights.memory import Row, checked, sampled, step_
from altmin.layers import Recurrent

LAYERS: dict[type, type[Affine]] = {
    nn.Linear: Linear, nn.Conv1d: Convolution, nn.Conv2d: Convolution, nn.Conv3d: Convolution,
    nn.RNN: Linear, nn.GRU: Linear, nn.LSTM: Linear, Recurrent: Linear,
}  # fmt: skip
ADAM, MEMORY = ("step", "exp_avg", "exp_avg_sq"), ("Y", "B", "scale", "K", "P")
"""The state of every parameter, and what that of weights with a memory has besides."""
TAKEN = ("Y", "scale")
"""What a memory takes from a mini-batch."""
UNSEEN = (
    "CoActivation has seen no inputs of a layer, so all parameters take steps of Adam: the model calls no nn.Linear, "
    "convolution or recurrent layer, or was compiled and called before it got the optimizer (then call "
    "torch.compiler.reset())"
)
Getter = Callable[[Any, Any], Tensor | None]
"""(input, output) of a call of a module -> the inputs (samples, ..., features) of one of its matrices, None if these
are not known."""


class CoActivation(torch.optim.Optimizer):
    """`CoActivationMemory` on the gradients of backpropagation: at `share=0` the two take the same steps.

        optimizer = altmin.optim.CoActivation(model, lr=0.004)
        loss_fn(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

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
            given = f"{type(params).__name__} " + ("alone" if model is None else f"and model={type(model).__name__}")
            raise TypeError(
                "CoActivation watches the inputs of a model's layers; give the model, CoActivation(model), or with its "
                f"parameters CoActivation(parameters, model=model), given {given}"
            )
        self.model, self.beta, self.rows, self.only = model, beta, rows, None
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        every_one = {p for group in self.param_groups for p in group["params"]}
        if not any(p.requires_grad for p in every_one):
            raise ValueError("CoActivation got a model without parameters to train; unfreeze some of them")
        if every_one.isdisjoint(model.parameters()):
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
        known = {id(recorder.p) for recorder in self.recorders}
        found = [(m, name) for m, name in _matrices(self.model) if id(getattr(m, name)) not in known]
        self.recorders += [Recorder(m, name, self.memory, self.rows) for m, name in found]
        self._listen()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step along the gradients of all parameters that have one. closure: computes these and returns the
        loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        device = self.param_groups[0]["params"][0].device.type
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            self._step()
        self._listen()
        return loss

    @_disable_dynamo  # torch.compile refuses kernels that change in place what it has not traced
    def _step(self) -> None:
        recorders = {recorder.p: recorder for recorder in self.recorders if recorder.is_whole}
        news = self._measured() if self._is_due() else {}
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
                    ok = all_finite(new["Y"]) & all_finite(new["scale"])
                    new = {name: torch.where(ok, t, state[name]) for name, t in new.items()}
                step, mean, square = (state[name] for name in ADAM)
                g = g.to_dense() if g.is_sparse else g
                many = state.get("rows", 0) >= MANY_ROWS
                layer = Layer(mean, g, state, new, many) if recorder and "Y" in state else None
                steps.append(step)
                rows.append(Row(p, g, step, mean, square, lr, decay, layer))
        if rows:
            if self.count == 1 and all(row.layer is None for row in rows):
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
        """Take steps of one kind meanwhile, which are not counted: they are recorded."""
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
            _sum_over_ranks(sums)
        measured: dict[Tensor, dict[str, Any]] = {}
        for recorder, each in zip(self.recorders, sums, strict=True):
            if each["samples"]:
                means = {name: each[name] / each["samples"] for name in TAKEN}
                measured[recorder.p] = {**means, "rows": each["rows"]}
        return measured

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients, and inputs that no step has used."""
        super().zero_grad(set_to_none)
        self._listen()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`. ValueError for that of another optimizer, or of other layers or another `rank`
        (nothing is changed then)."""
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = [i for group in state_dict["param_groups"] for i in group["params"]]
        saved = {p: state_dict["state"].get(i, {}) for p, i in zip(params, numbers, strict=False)}
        shapes = {r.p: {n: t.shape for n, t in self.memory.init(r.p, r.groups).items()} for r in self.recorders}
        fits = all("updates" in group for group in state_dict["param_groups"])
        for p, state in saved.items():
            memory = {name: t.shape for name, t in state.items() if name in MEMORY}
            known = set(state) - {*MEMORY, "rows"} == set(ADAM) and state["exp_avg"].shape == p.shape
            fits &= not state or (known and (not memory or memory == shapes.get(p)))
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
        """Its options, as of torch's optimizers, without the number of steps, in which runs do not differ."""
        return re.sub(r"\n +updates: \d+", "", super().__repr__())

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("memory", "beta", "rows", "only", "model", "recorders")}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        weakref.finalize(self, _close, self.recorders)
        self._listen()


class Recorder:
    """What the memory of one matrix, the parameter `name` of a module, takes from the module's calls since the last
    step. A copy records those of a copied module.

    sums: sums over samples, and the numbers of samples and of rows; None without calls.
    """

    def __init__(self, module: Any, name: str, memory: LayerMemory, rows: int):
        self.name, self.inputs, self.memory, self.limit = name, _inputs(module)[name], memory, rows
        self.module, self.map = weakref.ref(module), LAYERS[type(module)](module)
        self.map.module = None if isinstance(module, nn.RNNBase) else module
        self.p: Any = getattr(module, name)
        self.groups: int = self.map.groups
        self.sums: dict[str, Any] | None = None
        self.passed: dict[int, list[dict[str, Any]]] = {}
        """By the number of a backward pass: what was measured in the calls that it goes through."""
        self.due = True
        """Whether calls are recorded: a hook that is silent costs a step nothing, and torch.compile no graph."""
        self.handle = module.register_forward_hook(Hook(self), with_kwargs=True)
        self.arrival: Any = None

    @property
    def is_whole(self) -> bool:
        """True if the module still has the parameter, and trains it."""
        module = self.module()
        return self.p.requires_grad and module is not None and module._parameters.get(self.name) is self.p

    def listen(self, due: bool) -> None:
        """Drop what is recorded, and record calls if due. A call counts also if this comes before its backward pass."""
        self.sums, self.passed, self.due = None, {}, due
        if self.arrival is not None and not due:
            self.arrival.remove()
            self.arrival = None

    def zeros(self) -> dict[str, Any]:
        """Return the sums over no calls."""
        memory = self.memory.init(self.p, self.groups)
        return {**{name: memory[name] for name in TAKEN}, "samples": 0, "rows": 0}

    @_disable_dynamo  # as torch.compiler.disable, which imports the compiler at once
    def called(self, module: nn.Module, x: Any, output: Any) -> None:
        """Measure the inputs of a call; they count if a backward pass goes through one of its outputs."""
        if self.module() is not module:  # but a copy of it that has its hooks
            return
        outputs = [t for t in (output if isinstance(output, tuple) else [output]) if getattr(t, "requires_grad", False)]
        a = self.inputs(x, output) if outputs and self.is_whole else None
        if a is None or not a.numel():
            return
        with torch.no_grad(), torch.autocast(a.device.type, enabled=False):
            a = a.detach().to(self.p.dtype)
            rows, _, times = sampled(self.map, a, LOCAL, self.limit)
            counts = {"samples": len(a), "rows": len(a) * self.map.places(a)}
            new = {**self.memory.measure(rows, times), **counts}

        def arrived(_: Tensor) -> None:
            self.passed.setdefault(torch._C._current_graph_task_id(), []).append(new)

        for t in outputs:
            t.register_hook(arrived)
        if self.arrival is None:
            self.arrival = self.p.register_post_accumulate_grad_hook(Hook(self))

    @_disable_dynamo  # as torch.compiler.disable, which imports the compiler at once
    def accumulated(self) -> None:
        """Count the calls of the backward pass that has just added to the parameter's gradient, each once."""
        for new in self.passed.pop(torch._C._current_graph_task_id(), []):
            if new:
                self.sums = {name: new[name] + self.sums[name] for name in new} if self.sums else dict(new)
                new.clear()

    def __reduce__(self) -> Any:
        return Recorder, (self.module(), self.name, self.memory, self.limit)


class Hook:
    """The hook of a recorder, on a module's calls or on its parameter's gradient. A copy does nothing."""

    def __init__(self, recorder: Recorder | None = None):
        self.recorder = recorder

    def __call__(self, of: Any, *call: Any) -> None:
        if self.recorder is None or not self.recorder.due:
            return
        if call:
            args, kwargs, output = call
            self.recorder.called(of, args[0] if args else kwargs["input"], output)
        else:
            self.recorder.accumulated()

    def __reduce__(self) -> Any:
        return type(self), ()


def _sum_over_ranks(sums: list[dict[str, Any]]) -> None:
    """Add to the sums of each matrix those of all other ranks, in one message for each type."""
    device = sums[0]["Y"].device
    counts = torch.tensor([[each["samples"], each["rows"]] for each in sums], dtype=torch.float64, device=device)
    every = [counts, *(each[name] for each in sums for name in TAKEN)]
    for dtype in sorted({t.dtype for t in every}, key=str):
        tensors = [t for t in every if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(flat)
        for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(part.view_as(t))
    for each, (samples, rows) in zip(sums, counts.tolist(), strict=True):
        each |= {"samples": samples, "rows": rows}


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


def _matrices(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the matrices that may have a memory, each by its module and its name there: they belong to no other
    module. Hooks of others do not matter here, as for a `map_of` the layer."""
    owners: dict[int, int] = {}
    for m in model.modules():
        for p in m.parameters(recurse=False):
            owners[id(p)] = owners.get(id(p), 0) + 1
    known = [m for m in model.modules() if type(m) in LAYERS and "forward" not in vars(m)]
    return [(m, name) for m in known for name in _inputs(m) if owners.get(id(getattr(m, name, None))) == 1]


def _inputs(m: Any) -> dict[str, Getter]:
    """Return the names of the matrices of a layer, and how their inputs are found."""
    if isinstance(m, nn.RNNBase):
        return {} if getattr(m, "padded", False) else _recurrent_inputs(m)
    geometry = getattr(m, "padding_mode", "zeros"), getattr(m, "padding", 0) == "same"
    if geometry != ("zeros", False) or not Affine.fits(m) or not LAYERS[type(m)](m).matrices:
        return {}
    return {"weight": lambda x, _: x if x.ndim >= m.weight.ndim else x.unsqueeze(0)}


def _recurrent_inputs(m: nn.RNNBase) -> dict[str, Getter]:
    """Return those of the first layer's input, and of the last layer's states, which are its output."""

    def by_samples(t: Any) -> Tensor:
        t = t.data if isinstance(t, PackedSequence) else t  # rows, with no order of their own
        return t if m.batch_first or t.ndim < 3 else t.transpose(0, 1)

    def states(_: Any, output: Any, reverse: int) -> Tensor | None:
        h = output[0] if isinstance(output, tuple) else output
        if isinstance(h, PackedSequence):
            return None
        h = by_samples(h)
        h = (h if h.ndim == 3 else h.unsqueeze(0)).chunk(1 + int(m.bidirectional), -1)[reverse]
        return h[:, 1:] if reverse else h[:, :-1]

    getters: dict[str, Getter] = {}
    for reverse in range(1 + m.bidirectional):
        end = "_reverse" * reverse
        getters[f"weight_ih_l0{end}"] = lambda x, _: by_samples(x)
        getters[f"weight_hh_l{m.num_layers - 1}{end}"] = partial(states, reverse=reverse)
    return getters
