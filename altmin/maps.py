"""What one module does to a small change: the local calculus on which everything else is built.

A `Map` is one module y = f(x; p) seen through five operations, none of which looks beyond the module:

    forward     y, and what the other operations need to remember (`saved`)
    pull        J^T v, from the output's side to the input's
    push        J u, from the input's side to the output's
    move        f(x + u) - f(x) without cancellation, and the memory of the new point
    grads       the gradients of <v, y> with respect to the parameters p

Linear layers, convolutions, normalisations, element-wise activations and pooling have closed forms; any other
module goes through `torch.func` on that module alone.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Params = Sequence[Tensor]
Saved = Any


class Map:
    """One module. `couples`: a sample's output depends on the other samples. `selects`: each output is one of the
    inputs, none chosen twice, or zero; see `Block.straight`."""

    selects = False
    couples = False
    names: tuple[str, ...] = ()

    def __init__(self, module: nn.Module):
        self.module: Any = module
        self.names = tuple(name for name, _ in module.named_parameters())

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        raise NotImplementedError

    def pull(self, p: Params, saved: Saved, v: Tensor, /) -> Tensor:
        raise NotImplementedError

    def push(self, p: Params, saved: Saved, u: Tensor, /) -> Tensor:
        raise NotImplementedError

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        return self.push(p, saved, u), saved

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        return ()

    def replay(self, p: Params, saved: Saved, x: Tensor) -> tuple[Tensor, Saved]:
        """`forward` for other parameters or another input, with the random numbers of the saved pass."""
        return self.forward(p, x)

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        """Of a map that selects: how far each output may fall before another choice is made (None: any way), given the
        same of each input."""
        raise NotImplementedError

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        """Of a map that selects: `pull` of a move that has passed the map, free to use up the saved memory."""
        return self.pull((), saved, u)

    def commit(self, saved: Saved) -> None:
        """Writes what a training pass leaves in the module's buffers, once the step is known to be good."""


class Affine(Map):
    """What is linear in its input and in its parameters."""

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        return self.push(p, saved, u), saved + u


class Linear(Affine):
    """y = W x + b."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return F.linear(x, *p), x

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v @ p[0]

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return F.linear(u, p[0])

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        x, v = (saved, v) if v.ndim == 2 else (saved.flatten(0, -2), v.flatten(0, -2))
        return (v.mT @ x, v.sum(0))[: len(p)]


class Convolution(Affine):
    """Convolutions of one to three dimensions, transposed ones too."""

    def __init__(self, module: Any):
        super().__init__(module)
        self.dims = len(module.kernel_size)
        padding = [0] * self.dims if module.padding == "valid" else list(module.padding)
        geometry = list(module.stride), padding, list(module.dilation)
        self.geometry = (*geometry, module.transposed, list(module.output_padding), module.groups)

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return torch.convolution(x, p[0], p[1] if len(p) > 1 else None, *self.geometry), x

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self._backward(v, saved, p[0], (True, False, False))[0]

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return torch.convolution(u, p[0], None, *self.geometry)

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        dW = self._backward(v, saved, p[0], (False, True, False))[1]
        return (dW, v.sum([0, *range(2, v.ndim)]))[: len(p)]

    def _backward(self, v: Tensor, x: Tensor, W: Tensor, wanted: tuple[bool, ...]) -> Params:
        return torch.ops.aten.convolution_backward(v, x, W, None, *self.geometry, list(wanted))


def threshold(v: Tensor, at: Tensor) -> Tensor:
    """v where `at` is above zero, else 0."""
    return torch.ops.aten.threshold_backward(v, at, 0)


class ReLU(Map):
    """y = max(x, 0)."""

    selects = True

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        y = x.clamp_min(0)
        return y, (x, y)

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return threshold(v, saved[1])

    push = pull

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        x, y = saved
        y_moved, saved_moved = self.forward(p, x + u)
        return torch.where(y > 0, u.maximum(-y), y_moved), saved_moved

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        return saved[1] if below is None else below.minimum(saved[1])

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        return u


class Elementwise(Map):
    """Any other y_i = f(x_i). The slope comes from forward differentiation with a tangent of ones."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        y = self._function(x)
        return y, (x, y)

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.func.jvp(self._function, (x,), (torch.ones_like(x),))[1]

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.slope(*saved) * v

    push = pull

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        x, y = saved
        moved = x + u
        y_moved = self._function(moved)
        return self.difference(x, y, u, y_moved), (moved, y_moved)

    def difference(self, x: Tensor, y: Tensor, u: Tensor, y_moved: Tensor) -> Tensor:
        """Below the square root of the rounding error the tangent is the more exact of the two."""
        small = u.abs() < torch.finfo(x.dtype).eps ** 0.5 * (1 + x.abs())
        return torch.where(small, self.slope(x, y) * u, y_moved - y)

    def _function(self, x: Tensor) -> Tensor:
        # An in-place activation would overwrite the point at which it is differentiated.
        return self.module(x.clone() if getattr(self.module, "inplace", False) else x)


class Tanh(Elementwise):
    """tanh(x + u) - tanh(x) = tanh(u) (1 - tanh(x) tanh(x + u))."""

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        return 1 - y * y

    def difference(self, x: Tensor, y: Tensor, u: Tensor, y_moved: Tensor) -> Tensor:
        return torch.tanh(u) * (1 - y * y_moved)


class Sigmoid(Elementwise):
    """sigmoid(x) = (1 + tanh(x/2)) / 2, so its differences are those of tanh."""

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        return y * (1 - y)

    def difference(self, x: Tensor, y: Tensor, u: Tensor, y_moved: Tensor) -> Tensor:
        return torch.tanh(u / 2) * (1 - (2 * y - 1) * (2 * y_moved - 1)) / 2


class LinearModule(Map):
    """A linear module without parameters (average pooling, flattening, padding): its push is itself."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return self.module(x), x.shape

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.func.vjp(self.module, v.new_zeros(1).expand(saved))[1](v)[0]

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self.module(u)


class Reshape(LinearModule):
    """Flatten and Unflatten."""

    selects = True

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        return None if below is None else self.module(below)

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v.reshape(saved)


class AveragePool2d(LinearModule):
    """Average pooling in two dimensions, pulled back by PyTorch's own kernel."""

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        m, x = self.module, v.new_empty(1).expand(saved)
        if isinstance(m, nn.AdaptiveAvgPool2d):
            return torch.ops.aten._adaptive_avg_pool2d_backward(v, x)
        pair = [[n, n] if isinstance(n, int) else list(n) for n in (m.kernel_size, m.stride, m.padding)]
        return torch.ops.aten.avg_pool2d_backward(v, x, *pair, m.ceil_mode, m.count_include_pad, m.divisor_override)


class MaxPool(Map):
    """Max-pooling hands each output the input that won; `saved` holds the input and the winners' places."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        y, winners = self._pool(x)
        return y, (x, winners)

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        x, winners = saved[:2]
        flat = v.new_zeros(x.shape).flatten(2)
        return flat.scatter_add_(2, winners.flatten(2), v.flatten(2)).view(x.shape)

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._at(u, saved[1])

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        x, winners = saved[:2]
        new = self.forward(p, x + u)[1]
        return self._at(x, new[1]) - self._at(x, winners) + self._at(u, new[1]), new

    def _pool(self, x: Tensor) -> tuple[Tensor, Tensor]:
        m = self.module
        pool = getattr(
            F, type(m).__name__.replace("AdaptiveMaxPool", "adaptive_max_pool").replace("MaxPool", "max_pool")
        )
        if hasattr(m, "output_size"):
            return pool(x, m.output_size, return_indices=True)
        return pool(x, m.kernel_size, m.stride, m.padding, m.dilation, ceil_mode=m.ceil_mode, return_indices=True)

    @staticmethod
    def _at(x: Tensor, places: Tensor) -> Tensor:
        return x.flatten(2).gather(2, places.flatten(2)).view(places.shape)


class SeparatePool(Map):
    """Max-pooling whose windows do not overlap, so that no input wins twice: it selects.

    A tournament over the places of a window finds the winner and its lead over the second in one go. `saved` holds the
    input, the winner's number in its window, and the lead.
    """

    selects = True

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        first, *rest = self._places(x)
        best, second = x[first], torch.full_like(x[first], -torch.inf)
        winner = torch.zeros(best.shape, dtype=torch.uint8, device=x.device)
        for number, place in enumerate(rest, 1):
            rival = x[place]
            winner.masked_fill_(rival > best, number)
            second = second.maximum(best.minimum(rival))
            best = best.maximum(rival)
        return best, (x, winner, best - second)

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.spread((torch.empty_like(saved[0]), *saved[1:]), v)

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        x, winner = saved[:2]
        x.zero_()
        for number, place in enumerate(self._places(x)):
            x[place].copy_(u).mul_(winner == number)
        return x

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._at(u, saved[1])

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        x, winner = saved[:2]
        new = self.forward(p, x + u)[1]
        return self._at(x, new[1]) - self._at(x, winner) + self._at(u, new[1]), new

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        _, winner, lead = saved
        return lead if below is None else lead.minimum(self._at(below, winner))

    def _at(self, x: Tensor, winner: Tensor) -> Tensor:
        return sum(torch.where(winner == i, x[place], 0) for i, place in enumerate(self._places(x)))  # type: ignore[return-value]

    def _places(self, x: Tensor) -> list[Any]:
        """For each place in a window, where all windows have it."""
        dims = x.ndim - 2
        kernel, stride = (
            ((n,) * dims if isinstance(n, int) else n) for n in (self.module.kernel_size, self.module.stride)
        )
        ends = [(n - k) // s * s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
        return [
            (..., *(slice(a, a + end, s) for a, end, s in zip(start, ends, stride, strict=True)))
            for start in itertools.product(*map(range, kernel))
        ]


class Dropout(Map):
    """One mask a step: forward, pull and push all see the same units."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        m = self.module
        if not m.training or m.p == 0:
            return x, None
        whole_channels = 0 if type(m) is nn.Dropout else x.ndim - 2
        shape = x.shape[: x.ndim - whole_channels] + (1,) * whole_channels
        mask = x.new_empty(shape).bernoulli_(1 - m.p).div_(max(1 - m.p, 1e-30))
        return x * mask, mask

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v if saved is None else v * saved

    push = pull

    def replay(self, p: Params, saved: Saved, x: Tensor) -> tuple[Tensor, Saved]:
        return self.pull(p, saved, x), saved


class Normalisation(Map):
    """x̂ = (x - mean) / sqrt(var + eps), y = x̂ * weight + bias, as layer and batch norm have in common.

    With m entries to a mean, J = weight * (I - 1 1^T / m - x̂ x̂^T / m) / sqrt(var + eps).
    """

    def dims(self, x: Tensor) -> list[int]:
        """Those over which a mean is taken."""
        raise NotImplementedError

    def shared(self, x: Tensor) -> list[int]:
        """Those along which a parameter is repeated."""
        raise NotImplementedError

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self._project(saved, self._scale(p, v))

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._scale(p, self._project(saved, u))

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        dims, (xhat, inverse) = self.dims(saved), self._statistics(saved)
        centred, shift = xhat / inverse, u - u.mean(dims, keepdim=True)
        growth = (shift * (2 * centred + shift)).mean(dims, keepdim=True)  # of the variance
        moved = (inverse**-2 + growth).rsqrt()
        change = -growth * (inverse * moved) ** 2 / (inverse + moved)  # moved - inverse
        return self._scale(p, shift * moved + centred * change), saved + u

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        shared = self.shared(saved)
        return ((v * self._statistics(saved)[0]).sum(shared), v.sum(shared))[: len(p)]

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        var, mean = torch.var_mean(x, self.dims(x), unbiased=False, keepdim=True)
        inverse = (var + self.module.eps).rsqrt()
        return (x - mean) * inverse, inverse

    def _project(self, x: Tensor, u: Tensor) -> Tensor:
        dims, (xhat, inverse) = self.dims(x), self._statistics(x)
        return inverse * (u - u.mean(dims, keepdim=True) - xhat * (u * xhat).mean(dims, keepdim=True))

    def _scale(self, p: Params, u: Tensor) -> Tensor:
        if not p:
            return u
        shape = [1 if dim in self.shared(u) else n for dim, n in enumerate(u.shape)]
        return p[0].view(shape) * u


def _pair(p: Params) -> tuple[Tensor | None, Tensor | None]:
    return (p[0] if p else None), (p[1] if len(p) > 1 else None)


class LayerNorm(Normalisation):
    def dims(self, x: Tensor) -> list[int]:
        return list(range(-len(self.module.normalized_shape), 0))

    def shared(self, x: Tensor) -> list[int]:
        return list(range(x.ndim - len(self.module.normalized_shape)))

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        m = self.module
        return F.layer_norm(x, m.normalized_shape, *_pair(p), m.eps), x


class BatchNorm(Normalisation):
    """In training a sample sees the others through the mean; in evaluation it is affine, unit by unit."""

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return self.module.training or self.module.running_mean is None

    def dims(self, x: Tensor) -> list[int]:
        return [0, *range(2, x.ndim)]

    shared = dims

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        m = self.module
        if self.couples and x.numel() == x.shape[1]:
            raise ValueError(
                "batch norm in training needs more than one value per channel, given a batch of one; "
                "use larger batches, or model.eval() to train with fixed statistics"
            )
        mean, var = (None, None) if self.couples else (m.running_mean, m.running_var)
        return F.batch_norm(x, mean, var, *_pair(p), self.couples, 0.0, m.eps), x

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        return super().move(p, saved, u) if self.couples else (self.push(p, saved, u), saved + u)

    def commit(self, saved: Saved) -> None:
        m = self.module
        if not self.couples or m.running_mean is None:
            return
        m.num_batches_tracked += 1
        weight = 1 / float(m.num_batches_tracked) if m.momentum is None else m.momentum
        var, mean = torch.var_mean(saved, self.dims(saved), unbiased=True)
        m.running_mean.lerp_(mean, weight)
        m.running_var.lerp_(var, weight)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.couples:
            return super()._statistics(x)
        m = self.module
        mean, var = (q.view(-1, *[1] * (x.ndim - 2)) for q in (m.running_mean, m.running_var))
        inverse = (var + m.eps).rsqrt()
        return (x - mean) * inverse, inverse

    def _project(self, x: Tensor, u: Tensor) -> Tensor:
        return super()._project(x, u) if self.couples else self._statistics(x)[1] * u


class AnyModule(Map):
    """Everything else, through a vector-Jacobian product of this one module. Samples are taken to be independent,
    unless the module holds a batch norm in training."""

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.module.modules())

    def commit(self, saved: Saved) -> None:
        if self.couples:  # the module's own pass, for its running statistics
            self.module(saved)

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return self._call(p, x), x

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.func.vjp(lambda x: self._call(p, x), saved)[1](v)[0]

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return torch.func.jvp(lambda x: self._call(p, x), (saved,), (u,))[1]

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        moved = saved + u
        return self._call(p, moved) - self._call(p, saved), moved

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        return torch.func.vjp(lambda *p: self._call(p, saved), *p)[1](v) if p else ()

    def _call(self, p: Params, x: Tensor) -> Tensor:
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}  # not to be written before `commit`
        return torch.func.functional_call(self.module, dict(zip(self.names, p, strict=True)) | buffers, (x,))


CLOSED_FORMS: dict[type[nn.Module], type[Map]] = {
    nn.Linear: Linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), Convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), Convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), BatchNorm),
    nn.LayerNorm: LayerNorm,
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), Dropout),
    **dict.fromkeys((nn.Flatten, nn.Unflatten), Reshape),
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d), AveragePool2d),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool3d), LinearModule),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.PixelShuffle, nn.ChannelShuffle), LinearModule),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), MaxPool),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), MaxPool),
    nn.ReLU: ReLU,
    nn.Tanh: Tanh,
    nn.Sigmoid: Sigmoid,
    **dict.fromkeys((nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish), Elementwise),
    **dict.fromkeys((nn.Softplus, nn.Softsign, nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid), Elementwise),
    **dict.fromkeys((nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold), Elementwise),
}
"""Which map a module gets; anything not listed goes through `AnyModule`. Users may add their own."""

RANDOM = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)


def map_of(module: nn.Module) -> Map:
    """The map of one module.

    >>> type(map_of(nn.Linear(2, 3))).__name__, type(map_of(nn.Softmax(1))).__name__
    ('Linear', 'AnyModule')
    """
    if isinstance(module, RANDOM):
        raise TypeError(
            f"{type(module).__name__} draws new numbers at each call, so its changes cannot be followed; "
            "use nn.Dropout, whose mask is kept for the whole step"
        )
    kind = CLOSED_FORMS.get(type(module), AnyModule)
    if kind is Convolution and (module.padding_mode != "zeros" or module.padding == "same"):
        kind = AnyModule
    if kind is MaxPool and _windows_are_separate(module):
        kind = SeparatePool
    return kind(module)


def _windows_are_separate(m: Any) -> bool:
    if hasattr(m, "output_size") or m.ceil_mode:
        return False
    kernel, stride, padding, dilation = (torch.as_tensor(n) for n in (m.kernel_size, m.stride, m.padding, m.dilation))
    return bool((kernel <= stride).all() and (padding == 0).all() and (dilation == 1).all())
