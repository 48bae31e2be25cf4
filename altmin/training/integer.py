"""Nets with weights of few bits and discrete activations, computed with integers.

Between the first and the last discrete activation of such a net everything is an integer: activations are x / (n - 1)
with x one of -(n - 1), -(n - 3), ..., n - 1, weights are a q with a number a > 0 for each output, and whatever lies
between a layer and its activation (a, bias, batch norm) is monotone in the sum of all q x. So the next activation is
the number of thresholds that this sum reaches, and the thresholds are integers. What comes before the first activation
reads real inputs, and what comes after the last one gives real outputs: these parts stay floating.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.layers import FewBits, QuantisedConv2d, QuantisedLinear, Sign, Staircase, Stepwise, committed
from altmin.training import checkpoint

BATCH = 500
"""Samples that are computed at a time."""
CONVOLUTION = ("in_channels", "out_channels", "kernel_size", "stride", "padding")
PARTS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Flatten: ("start_dim", "end_dim"),
    nn.Linear: ("in_features", "out_features"),
    nn.Conv2d: (*CONVOLUTION, "dilation", "groups", "padding_mode"),
    nn.BatchNorm1d: ("num_features", "eps", "momentum", "affine"),
    nn.BatchNorm2d: ("num_features", "eps", "momentum", "affine"),
    nn.MaxPool2d: ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"),
    QuantisedLinear: ("in_features", "out_features"),
    QuantisedConv2d: CONVOLUTION,
    Sign: (),
    Staircase: ("levels",),
}
"""What a net may consist of, and the arguments that its parts are made from."""


class Agreement(NamedTuple):
    """How many samples were compared, for how many the predicted classes differ, and the largest difference of
    outputs."""

    samples: int
    differing: int
    largest: float

    @property
    def same(self) -> bool:
        return self.differing == 0


@dataclass
class IntegerLayer:
    """A layer and its activation. packed: the weights, `bits` each, eight bits to a byte. signs: -1 for an output whose
    activation falls with the sum, as after batch norm with a negative factor, and 1 for the others. thresholds:
    (outputs, levels - 1), rising; the activation is the number of those that the sum times its sign reaches. before,
    after: kernels and strides of max-pooling of the sums and of the activations. flat: whether its input is flattened.
    stride, padding: None for a linear layer."""

    packed: Tensor
    shape: Sequence[int]
    bits: int
    signs: Tensor
    thresholds: Tensor
    before: Sequence[Sequence[int]]
    after: Sequence[Sequence[int]]
    flat: bool
    stride: int | None = None
    padding: int | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The integers of the activation, given those of the activation below."""
        total = _pooled(self.sums(x.flatten(1) if self.flat else x), self.before)
        each = (-1, *[1] * (total.ndim - 2))
        total *= self.signs.view(each)
        count = torch.zeros_like(total)
        for threshold in self.thresholds.T:
            count += total >= threshold.view(each)
        return _pooled(2 * count - self.thresholds.shape[1], self.after)

    def sums(self, x: Tensor) -> Tensor:
        """The sums of q x."""
        q = unpack(self.packed, self.shape, self.bits).flatten(1)
        if self.stride is None or self.padding is None:
            return x @ q.T
        kernel = self.shape[2]
        x = F.pad(x, [self.padding] * 4).unfold(2, kernel, self.stride).unfold(3, kernel, self.stride)
        rows = x.permute(0, 2, 3, 1, 4, 5).flatten(3)
        return (rows @ q.T).permute(0, 3, 1, 2)


class IntegerNet:
    """The net that a trained model computes in evaluation, with integers between its first and last discrete
    activation.

    The model is an `nn.Sequential`. Between those activations it has `QuantisedLinear` and `QuantisedConv2d`, each
    followed by `Sign` or `Staircase`, with batch norm, max-pooling, flattening and dropout between. `Committed` counts
    as its discrete activation. TypeError or ValueError for another model, saying which part does not fit.
    """

    def __init__(self, model: nn.Module):
        modules: list[Any] = _flat(committed(model))
        places = [i for i, m in enumerate(modules) if isinstance(m, Stepwise)]
        if not places:
            raise ValueError("an IntegerNet needs a model with Sign or Staircase activations, and this one has none")
        self.first = _copied(modules[: places[0] + 1])
        self.last = _copied(modules[places[-1] + 1 :])
        self.levels: list[int] = [modules[i].levels for i in places]
        pairs = itertools.pairwise(places)
        self.layers = [_layer(modules[i + 1 : j + 1], modules[i].levels) for i, j in pairs]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The outputs of samples."""
        return torch.cat([self._outputs(part) for part in x.split(BATCH)])

    def _outputs(self, x: Tensor) -> Tensor:
        s = self.first(x)
        y = s.mul(self.levels[0] - 1).round().int()
        for layer in self.layers:
            y = layer(y)
        outputs: Tensor = self.last(y.to(s.dtype) / (self.levels[-1] - 1))
        return outputs

    @torch.no_grad()
    def check(self, model: nn.Module, x: Tensor) -> Agreement:
        """Compares predictions with those of the floating model in evaluation mode, which is left as it was."""
        training = [m for m in model.modules() if m.training]
        model.eval()
        wanted = torch.cat([model(part) for part in x.split(BATCH)])
        for m in training:
            m.training = True
        found = self(x)
        differing = int((found.argmax(1) != wanted.argmax(1)).sum())
        return Agreement(len(x), differing, float((found - wanted).abs().max()))

    @property
    def nbytes(self) -> int:
        """Of weights, signs and thresholds of the integer layers."""
        return sum(t.nbytes for layer in self.layers for t in (layer.packed, layer.signs, layer.thresholds))

    def save(self, path: str | Path) -> None:
        """Writes a safetensors file, whole or not at all; nothing is pickled."""
        layers = [vars(layer) for layer in self.layers]
        parts = {"first": _described(self.first), "last": _described(self.last)}
        checkpoint.save(path, {"kind": "integer net", "levels": self.levels, "layers": layers, **parts})

    @classmethod
    def load(cls, path: str | Path) -> "IntegerNet":
        """The net that `save` wrote. ValueError for another file."""
        state = checkpoint.load(path)
        if state.get("kind") != "integer net":
            raise ValueError(f"{path} is not a file that IntegerNet.save has written")
        net = cls.__new__(cls)
        net.levels, net.layers = state["levels"], [IntegerLayer(**each) for each in state["layers"]]
        net.first, net.last = _rebuilt(state["first"]), _rebuilt(state["last"])
        return net


def pack(q: Tensor, bits: int) -> Tensor:
    """Odd integers between -(2^bits - 1) and 2^bits - 1, `bits` bits each, as bytes.

    >>> pack(torch.tensor([1, -1, -1, 1, 1, 1, 1, 1, 1]), 1)
    tensor([249,   1], dtype=torch.uint8)
    """
    index = (q.flatten().to(torch.int32) + 2**bits - 1) // 2
    each = (index[:, None] >> torch.arange(bits)) & 1
    whole = F.pad(each.flatten(), (0, -each.numel() % 8)).view(-1, 8)
    return (whole << torch.arange(8)).sum(1).to(torch.uint8)


def unpack(packed: Tensor, shape: Sequence[int], bits: int) -> Tensor:
    """The integers that `pack` was given, as int32."""
    count = torch.Size(shape).numel()
    each = (packed[:, None].to(torch.int32) >> torch.arange(8, dtype=torch.int32)) & 1
    index = (each.flatten()[: count * bits].view(count, bits) << torch.arange(bits, dtype=torch.int32)).sum(1)
    return (2 * index - 2**bits + 1).to(torch.int32).view(*shape)


def _flat(model: nn.Module) -> list[nn.Module]:
    """The modules of nested Sequentials in their order, without dropout."""
    if isinstance(model, nn.Sequential):
        return [m for child in model for m in _flat(child)]
    if isinstance(model, nn.Dropout | nn.Dropout2d | nn.Identity):
        return []
    if type(model) not in PARTS:
        known = ", ".join(kind.__name__ for kind in PARTS)
        raise TypeError(f"an IntegerNet cannot contain {type(model).__name__}; a model for it consists of {known}")
    if isinstance(model, nn.BatchNorm1d | nn.BatchNorm2d) and not model.track_running_stats:
        raise ValueError("batch norm without running statistics has no fixed thresholds, so there is no IntegerNet")
    return [model]


def _layer(modules: Sequence[nn.Module], below: int) -> IntegerLayer:
    """One integer layer, from all modules after an activation with `below` levels up to the next activation."""
    weighted = [m for m in modules if isinstance(m, nn.Linear | nn.Conv2d)]
    layer: Any = weighted[0] if len(weighted) == 1 else None
    if not isinstance(layer, FewBits):
        raise ValueError(
            "between two discrete activations an IntegerNet has one QuantisedLinear or QuantisedConv2d, given "
            f"({', '.join(type(m).__name__ for m in modules[:-1])})"
        )
    at = modules.index(layer)
    before, after = modules[:at], modules[at + 1 :]
    if any(not isinstance(m, nn.Flatten) for m in before) or any(isinstance(m, nn.Flatten) for m in after):
        raise ValueError(
            "an IntegerNet flattens right before a layer and pools before an activation; reorder the model"
        )
    early = list(itertools.takewhile(lambda m: isinstance(m, nn.MaxPool2d), after))
    late = [m for m in after[len(early) :] if isinstance(m, nn.MaxPool2d)]
    between = _copied([m for m in after[:-1] if not isinstance(m, nn.MaxPool2d)])
    with torch.no_grad():
        q = pack(layer.integers(layer.weight), layer.bits)
        signs, thresholds = _thresholds(layer, between, after[-1], below)
    pools = [_pool(m) for m in early], [_pool(m) for m in late]
    given = q, list(layer.weight.shape), layer.bits, signs, thresholds, *pools, bool(before)
    return IntegerLayer(*given) if isinstance(layer, nn.Linear) else IntegerLayer(*given, *_geometry(layer))


def _thresholds(layer: Any, between: nn.Module, activation: Any, below: int) -> tuple[Tensor, Tensor]:
    """For each output +1 or -1, whether the activation rises or falls with the sum; and for each level but the lowest
    the least sum, times this sign, at which it is reached, by bisection with the model's own modules."""
    w = layer.weight
    most = w[0].numel() * (2**layer.bits - 1) * (below - 1)
    scale, bias = layer.scale(w), 0 if layer.bias is None else layer.bias
    shape = (1, -1, 1, 1) if isinstance(layer, nn.Conv2d) else (1, -1)

    def level(total: Tensor) -> Tensor:
        z = total.to(w.dtype) / (below - 1) * scale + bias
        s: Tensor = activation(between(z.view(shape))).flatten()
        return ((s + 1) / activation.spacing).round()

    ends = torch.full((len(w),), most)
    sign = torch.where(level(ends) >= level(-ends), 1, -1)
    found = []
    for j in range(1, activation.levels):
        low, high = -ends, ends + 1
        while bool((low < high).any()):
            middle = (low + high).div(2, rounding_mode="floor")
            reached = level(sign * middle) >= j
            low, high = torch.where(reached, low, (middle + 1).minimum(high)), torch.where(reached, middle, high)
        found.append(low)
    return sign.to(torch.int8), torch.stack(found, 1).to(torch.int32)


def _pooled(x: Tensor, pools: Sequence[Sequence[int]]) -> Tensor:
    for kernel, stride in pools:
        x = x.unfold(2, kernel, stride).unfold(3, kernel, stride).amax((-2, -1))
    return x


def _pool(m: Any) -> list[int]:
    """Kernel and stride. Max-pooling commutes with whatever rises: right after a layer it may go before the layer's
    scale and bias, and elsewhere after the activation."""
    if m.padding != 0 or m.dilation != 1 or m.ceil_mode or not isinstance(m.kernel_size, int):
        raise ValueError(f"max-pooling of an IntegerNet has a square kernel and no padding or dilation, given {m}")
    return [m.kernel_size, int(m.stride)]


def _geometry(m: Any) -> tuple[int, int]:
    """Stride and padding of a convolution."""
    return m.stride[0], int(m.padding[0])


def _copied(modules: Sequence[nn.Module]) -> nn.Sequential:
    """Copies with values of their own, in evaluation mode."""
    return _rebuilt(_described(modules))


def _described(modules: Any) -> list[Any]:
    """What `_rebuilt` makes modules from: names, arguments and tensors."""
    return [{"name": type(m).__name__, "given": _arguments(m), "state": dict(m.state_dict())} for m in modules]


def _arguments(m: Any) -> dict[str, Any]:
    names = {"in_features": "inputs", "out_features": "outputs", "in_channels": "inputs", "out_channels": "outputs"}
    ours = isinstance(m, FewBits)
    found = {}
    for name in PARTS[type(m)]:
        value = getattr(m, name)
        value = value[0] if isinstance(value, tuple) and ours else value
        found[{**names, "kernel_size": "kernel"}.get(name, name) if ours else name] = value
    if isinstance(m, nn.Linear | nn.Conv2d):
        found["bias"] = m.bias is not None
    return found | ({"bits": m.bits} if isinstance(m, FewBits) else {})


def _rebuilt(parts: Sequence[Any]) -> nn.Sequential:
    kinds: dict[str, Any] = {kind.__name__: kind for kind in PARTS}
    modules = []
    for part in parts:
        module = kinds[part["name"]](**part["given"])
        module.load_state_dict({name: t.detach().clone() for name, t in part["state"].items()}, assign=True)
        modules.append(module)
    return nn.Sequential(*modules).eval()
