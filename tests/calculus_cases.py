"""Modules of every kind with the shape of an input, and the contract that the map of each must keep.

Expectations come from autograd on the module itself, in float64.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from altmin.calculus import map_of
from altmin.layers import GatedScan, Last, Scale, View


class Bilinear(nn.Module):
    """A module of one's own with parameters: y = tanh(V x) * (W x)."""

    def __init__(self):
        super().__init__()
        self.V = nn.Parameter(torch.randn(4, 5))
        self.W = nn.Parameter(torch.randn(4, 5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.V.T) * (x @ self.W.T)


class Square(nn.Module):
    """A module of one's own without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.abs() + torch.sin(x)


AFFINE = [
    (lambda: nn.Linear(5, 4), (3, 5)),
    (lambda: nn.Linear(5, 4, bias=False), (3, 5)),
    (lambda: nn.Linear(5, 4), (3, 2, 5)),
    (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    (lambda: nn.Conv1d(3, 2, 2, padding="valid"), (2, 3, 5)),
    (lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1)), (2, 2, 7, 6)),
    (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 2, 5, 5)),
    (lambda: nn.Conv3d(2, 3, 2, padding=1), (2, 2, 3, 4, 3)),
    (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1, output_padding=1), (2, 3, 5)),
    (lambda: nn.ConvTranspose2d(4, 2, 3, stride=2, groups=2), (2, 4, 3, 4)),
    (lambda: nn.ConvTranspose3d(2, 2, 2, bias=False), (2, 2, 2, 3, 2)),
]
NORMALISATION = [
    (lambda: nn.BatchNorm1d(5), (6, 5)),
    (lambda: nn.BatchNorm1d(5), (6, 5, 3)),
    (lambda: nn.BatchNorm1d(5, affine=False), (6, 5)),
    (lambda: nn.BatchNorm1d(5, track_running_stats=False), (6, 5)),
    (lambda: nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 2)),
    (lambda: nn.BatchNorm3d(2), (3, 2, 2, 2, 2)),
    (lambda: nn.LayerNorm(5), (3, 5)),
    (lambda: nn.LayerNorm((4, 5)), (3, 2, 4, 5)),
    (lambda: nn.LayerNorm(5, bias=False), (3, 5)),
    (lambda: nn.LayerNorm(5, elementwise_affine=False), (3, 5)),
]
LINEAR = [
    (lambda: nn.Dropout(0.0), (3, 5)),
    (lambda: nn.Dropout1d(0.0), (3, 5, 2)),
    (lambda: nn.Dropout2d(0.0), (3, 5, 2, 2)),
    (lambda: nn.Dropout3d(0.0), (3, 5, 2, 2, 2)),
    (lambda: nn.Flatten(), (3, 2, 4)),
    (lambda: nn.Unflatten(1, (2, 3)), (3, 6)),
    (lambda: View(-1, 3, 2), (3, 6)),
    (lambda: Scale(-0.3), (3, 6)),
    (lambda: nn.AvgPool1d(2), (3, 2, 6)),
    (lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), (2, 2, 6, 5)),
    (lambda: nn.AvgPool2d(3, stride=2, padding=1), (2, 2, 6, 5)),
    (lambda: nn.AvgPool2d((2, 3), ceil_mode=True, divisor_override=5), (2, 2, 5, 7)),
    (lambda: nn.AvgPool3d(2), (2, 2, 4, 4, 4)),
    (lambda: nn.AdaptiveAvgPool1d(3), (2, 2, 7)),
    (lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 2, 5, 7)),
    (lambda: nn.AdaptiveAvgPool2d(1), (2, 2, 3, 4)),
    (lambda: nn.AdaptiveAvgPool2d((1, 2)), (2, 2, 3, 4)),
    (lambda: nn.AdaptiveAvgPool2d((2, 1)), (2, 2, 3, 4)),
    (lambda: nn.AdaptiveAvgPool3d(2), (2, 2, 3, 3, 3)),
    (lambda: nn.ZeroPad1d(2), (2, 3, 4)),
    (lambda: nn.ZeroPad2d((1, 2, 0, 1)), (2, 3, 4, 4)),
    (lambda: nn.ZeroPad3d(1), (2, 1, 2, 2, 2)),
    (lambda: nn.PixelShuffle(2), (2, 8, 3, 3)),
    (lambda: nn.ChannelShuffle(2), (2, 4, 3, 3)),
]
POOLING = [
    (lambda: nn.MaxPool1d(2), (2, 3, 7)),
    (lambda: nn.MaxPool2d((2, 3), stride=(2, 4)), (2, 3, 6, 7)),
    (lambda: nn.MaxPool2d((2, 3), stride=(3, 2)), (2, 3, 6, 7)),
    (lambda: nn.MaxPool2d(16), (2, 1, 16, 17)),
    (lambda: nn.MaxPool1d(257), (2, 1, 260)),
    (lambda: nn.MaxPool2d(1, stride=2), (2, 3, 5, 5)),
    (lambda: nn.MaxPool2d(2, padding=1), (2, 3, 6, 6)),
    (lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 6, 7)),
    (lambda: nn.MaxPool2d(2, ceil_mode=True, dilation=2), (2, 3, 8, 7)),
    (lambda: nn.MaxPool3d(2), (2, 2, 4, 4, 4)),
    (lambda: nn.AdaptiveMaxPool1d(3), (2, 2, 7)),
    (lambda: nn.AdaptiveMaxPool2d(2), (2, 2, 5, 5)),
    (lambda: nn.AdaptiveMaxPool3d(2), (2, 2, 3, 3, 3)),
]
ACTIVATIONS = [
    *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Softsign, nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink),
    nn.Hardshrink,
]
ELEMENTWISE = [
    *((activation, (3, 5)) for activation in ACTIVATIONS),
    (lambda: nn.Threshold(0.3, -1.0), (3, 5)),
    (lambda: nn.GELU(approximate="tanh"), (3, 5)),
    (lambda: nn.LeakyReLU(0.3), (3, 4, 2, 2)),
]
OTHER = [
    (Bilinear, (3, 5)),
    (Square, (3, 5)),
    (lambda: nn.PReLU(5), (3, 5)),
    (lambda: nn.GroupNorm(2, 4), (3, 4, 2)),
    (lambda: nn.Softmax(1), (3, 5)),
    (lambda: nn.Conv2d(2, 2, 3, padding="same"), (2, 2, 5, 5)),
    (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (2, 2, 5, 5)),
]
GATED = [(GatedScan, (3, 7, 4)), (GatedScan, (2, 1, 6)), (Last, (3, 4, 2))]
CASES = [*AFFINE, *NORMALISATION, *LINEAR, *POOLING, *ELEMENTWISE, *GATED, *OTHER]
Case = tuple[Callable[[], nn.Module], tuple[int, ...]]


def has_modes(make: Callable[[], nn.Module]) -> bool:
    """Whether training and evaluation are two things."""
    kinds = nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd
    return any(isinstance(m, kinds) for m in make().modules())


def names(cases: Sequence[Case]) -> list[str]:
    return [f"{type(make()).__name__}-{'x'.join(map(str, shape))}-{i}" for i, (make, shape) in enumerate(cases)]


def build(make: Callable[[], nn.Module], training: bool = True, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The module with parameters and running statistics that are neither zero nor one."""
    torch.manual_seed(0)
    module = make().to(dtype).train(training)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p))
        for name, buffer in module.named_buffers():
            if name.startswith("running"):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return module


def function(module: nn.Module) -> Callable[..., Tensor]:
    """(x, *p) -> y as PyTorch computes it, in a copy, so that no statistics of the module change."""
    other = copy.deepcopy(module)
    keys = [name for name, _ in module.named_parameters()]
    return lambda x, *p: functional_call(other, dict(zip(keys, p, strict=True)), (x.clone(),))


def parameters(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def gradients(f: Callable[..., Tensor], x: Tensor, p: Sequence[Tensor], v: Tensor) -> list[Tensor]:
    """Those of <v, f> with respect to the input and to every parameter, by autograd."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, *p)]
    return list(torch.autograd.grad((f(*leaves) * v).sum(), leaves, materialize_grads=True))


def jvp(f: Callable[..., Tensor], x: Tensor, p: Sequence[Tensor], u: Tensor) -> Tensor:
    """The whole Jacobian, row by row from autograd, times u."""
    J = torch.autograd.functional.jacobian(lambda x: f(x, *p), x.detach())
    return torch.tensordot(J, u, dims=u.ndim)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def stands_at(m: Any, saved: Any, f: Callable[..., Tensor], x: Tensor, p: Sequence[Tensor]) -> None:
    """Holds a map's vjp, jvp and grads against autograd's derivatives of f at x."""
    y = f(x, *p)
    u, v = torch.randn_like(x), torch.randn_like(y)
    on_x, *on_p = gradients(f, x, p, v)
    close(m.vjp(p, saved, v), on_x)
    close(m.jvp(p, saved, u), jvp(f, x, p, u))
    grads = list(m.grads(p, saved, v))
    g, both = m.vjp_and_grads(p, saved, v)
    for mine, alone in zip([g, *both], [m.vjp(p, saved, v), *grads], strict=True):
        close(mine, alone)
    assert len(grads) == len(on_p)
    for grad, wanted in zip(grads, on_p, strict=True):
        close(grad, wanted)


def outcome(m: Any, p: Sequence[Tensor], x: Tensor, u: Tensor, v: Tensor) -> list[Tensor]:
    """Every operation of a map at one point, and its vjp at another."""
    y, saved = m.forward(p, x)
    other, moved = m.replay(p, saved, x - u)
    return [y, m.vjp(p, saved, v), m.jvp(p, saved, u), other, m.vjp(p, moved, v), *m.grads(p, saved, v)]


def contract(cases: Sequence[Case], map_of: Callable[[nn.Module], Any] = map_of) -> type:
    """A class of tests: what every map must do, for the maps of these modules in training and in evaluation."""

    both = [
        pytest.param(*case, training, id=f"{name}-{'train' if training else 'eval'}")
        for case, name in zip(cases, names(cases), strict=True)
        for training in ([True, False] if has_modes(case[0]) else [True])
    ]

    @pytest.mark.parametrize("make, shape, training", both)
    class Contract:
        def test_a_map_agrees_with_autograd_on_its_module(self, make, shape, training):
            module = build(make, training)
            f, p, m = function(module), parameters(module), map_of(module)
            x = torch.randn(shape, dtype=torch.float64)
            y, saved = m.forward(p, x)
            close(y, f(x, *p))
            stands_at(m, saved, f, x, p)

        def test_a_replay_at_another_input_is_a_pass_there(self, make, shape, training):
            module = build(make, training)
            f, p, m = function(module), parameters(module), map_of(module)
            x, other = torch.randn(2, *shape, dtype=torch.float64)
            y, saved = m.replay(p, m.forward(p, x)[1], other)
            close(y, f(other, *p))
            stands_at(m, saved, f, other, p)

        def test_a_pass_leaves_input_module_and_memory_alone(self, make, shape, training):
            module = build(make, training)
            before = copy.deepcopy(module.state_dict())
            p, m = parameters(module), map_of(module)
            x, u = torch.randn(2, *shape, dtype=torch.float64)
            kept = [t.clone() for t in (x, u, *p)]
            y, saved = m.forward(p, x)
            v = torch.randn_like(y)
            first = m.vjp(p, saved, v).clone()
            m.jvp(p, saved, u), m.replay(p, saved, u), m.grads(p, saved, v)
            assert all(torch.equal(a, b) for a, b in zip((x, u, *p), kept, strict=True))
            assert torch.equal(m.vjp(p, saved, v), first), "the memory of the first point must survive the others"
            assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())

        def test_many_members_at_once_give_what_each_gives(self, make, shape, training):
            module = build(make, training)
            m = map_of(module)
            x, u = torch.randn(2, 2, *shape, dtype=torch.float64)
            p = [torch.stack([q, torch.randn_like(q)]) for q in parameters(module)]
            v = torch.randn_like(torch.stack([m.forward([q[i] for q in p], x[i])[0] for i in range(2)]))
            together = vmap(partial(outcome, m.functional()), randomness="different")(p, x, u, v)
            for i in range(2):
                for wanted, member in zip(outcome(m, [q[i] for q in p], x[i], u[i], v[i]), together, strict=True):
                    close(member[i], wanted, 1e-10)

    return Contract
