"""Inputs of layers, as the memories of an optimizer take them: hooks on the calls of a model."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn.utils.rnn import PackedSequence

from altmin.calculus.context import LOCAL
from altmin.calculus.linear import Affine, Convolution, Linear
from altmin.core.weights.layer_memory import LayerMemory
from altmin.core.weights.memory import sampled
from altmin.layers import Recurrent

LAYERS: dict[type, type[Affine]] = {
    nn.Linear: Linear, nn.Conv1d: Convolution, nn.Conv2d: Convolution, nn.Conv3d: Convolution,
    nn.RNN: Linear, nn.GRU: Linear, nn.LSTM: Linear, Recurrent: Linear,
}  # fmt: skip
MEASURED = ("Y", "scale")
"""Entries that `LayerMemory.measure` returns."""
Getter = Callable[[Any, Any], Tensor | None]
"""(input, output) of a call of a module -> the inputs (samples, ..., features) of one of its matrices, None if these
are not known."""


class Recorder:
    """Statistics of a module's calls since the last step, for the memory of one of its matrices, the parameter `name`.
    A copy records the calls of a copied module.

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
        """Statistics of the calls that a backward pass goes through, by the number of the pass."""
        self.due = True
        """True if calls are recorded: a hook that is silent costs a step nothing, and torch.compile no graph."""
        self.handle = module.register_forward_hook(Hook(self), with_kwargs=True)
        self.arrival: Any = None
        self.version: int | None = None
        """Version of the parameter's gradient, a count of changes in place, after the last backward pass."""

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
        return {**{name: memory[name] for name in MEASURED}, "samples": 0, "rows": 0}

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
            if self.sums and self._is_forgotten():
                self.sums = None
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
        self.version = self.p.grad._version if self.p.grad is not None else None

    def _is_forgotten(self) -> bool:
        """Return whether the gradient of the sums was set to None or zeroed since the last backward pass."""
        g = self.p.grad
        return g is None or (g._version != self.version and not bool(g.any()))

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
            self.recorder.called(of, args[0] if args else kwargs.get("input", kwargs.get("x")), output)
        else:
            self.recorder.accumulated()

    def __reduce__(self) -> Any:
        return type(self), ()


def sum_over_ranks(sums: list[dict[str, Any]]) -> None:
    """Add to the sums of each matrix those of all other ranks, in one message for each type."""
    device = sums[0]["Y"].device
    counts = torch.tensor([[entry["samples"], entry["rows"]] for entry in sums], dtype=torch.float64, device=device)
    totals = [counts, *(entry[name] for entry in sums for name in MEASURED)]
    for dtype in sorted({t.dtype for t in totals}, key=str):
        tensors = [t for t in totals if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(flat)
        for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(part.view_as(t))
    for entry, (samples, rows) in zip(sums, counts.tolist(), strict=True):
        entry |= {"samples": samples, "rows": rows}


def matrices(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the matrices that may have a memory, each by its module and its name there: they belong to no other
    module. Hooks of others do not matter here, as for a `map_of` the layer."""
    owners: dict[int, int] = {}
    for m in model.modules():
        for p in m.parameters(recurse=False):
            owners[id(p)] = owners.get(id(p), 0) + 1
    layers = [m for m in model.modules() if type(m) in LAYERS and "forward" not in vars(m)]
    return [(m, name) for m in layers for name in _inputs(m) if owners.get(id(getattr(m, name, None))) == 1]


def _inputs(m: Any) -> dict[str, Getter]:
    """Return the names of the matrices of a layer, and how their inputs are found."""
    if isinstance(m, nn.RNNBase):
        return {} if getattr(m, "padded", False) else _recurrent_inputs(m)
    geometry = getattr(m, "padding_mode", "zeros"), getattr(m, "padding", 0) == "same"
    if geometry != ("zeros", False) or not Affine.fits(m) or not LAYERS[type(m)](m).matrices:
        return {}
    return {"weight": lambda x, _: x if x.ndim >= m.weight.ndim else x.unsqueeze(0)}


def _recurrent_inputs(m: nn.RNNBase) -> dict[str, Getter]:
    """Return `_inputs` of a recurrent layer: of the first layer's input, and the last layer's states, its output."""

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
