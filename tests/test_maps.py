"""Every map does what autograd says its module does, in float64, and keeps tiny moves in float32."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import altmin
from altmin.calculus import CLOSED_FORMS, AnyModule, map_of


class Bilinear(nn.Module):
    """An unknown module with parameters: y = tanh(V x) * (W x)."""

    def __init__(self):
        super().__init__()
        self.V = nn.Parameter(torch.randn(4, 5))
        self.W = nn.Parameter(torch.randn(4, 5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.V.T) * (x @ self.W.T)


class Square(nn.Module):
    """An unknown module without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.abs() + torch.sin(x)


ACTIVATIONS = [
    *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Softsign, nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink),
    nn.Hardshrink,
]

# A module and the shape of an input; every closed form must have at least one.
CASES = [
    (lambda: nn.Linear(5, 4), (3, 5)),
    (lambda: nn.Linear(5, 4, bias=False), (3, 5)),
    (lambda: nn.Linear(5, 4), (3, 2, 5)),
    (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    (lambda: nn.Conv1d(3, 2, 2, padding="valid"), (2, 3, 5)),
    (lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1)), (2, 2, 7, 6)),
    (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 2, 5, 5)),
    (lambda: nn.Conv2d(2, 2, 3, padding="same"), (2, 2, 5, 5)),
    (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (2, 2, 5, 5)),
    (lambda: nn.Conv3d(2, 3, 2, padding=1), (2, 2, 3, 4, 3)),
    (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1, output_padding=1), (2, 3, 5)),
    (lambda: nn.ConvTranspose2d(4, 2, 3, stride=2, groups=2), (2, 4, 3, 4)),
    (lambda: nn.ConvTranspose3d(2, 2, 2, bias=False), (2, 2, 2, 3, 2)),
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
    (lambda: nn.Dropout(0.0), (3, 5)),
    (lambda: nn.Dropout1d(0.0), (3, 5, 2)),
    (lambda: nn.Dropout2d(0.0), (3, 5, 2, 2)),
    (lambda: nn.Dropout3d(0.0), (3, 5, 2, 2, 2)),
    (lambda: nn.Flatten(), (3, 2, 4)),
    (lambda: nn.Unflatten(1, (2, 3)), (3, 6)),
    (lambda: nn.AvgPool1d(2), (3, 2, 6)),
    (lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), (2, 2, 6, 5)),
    (lambda: nn.AvgPool2d((2, 3), ceil_mode=True, divisor_override=5), (2, 2, 5, 7)),
    (lambda: nn.AvgPool3d(2), (2, 2, 4, 4, 4)),
    (lambda: nn.AdaptiveAvgPool1d(3), (2, 2, 7)),
    (lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 2, 5, 7)),
    (lambda: nn.AdaptiveAvgPool2d(1), (2, 2, 3, 3)),
    (lambda: nn.AdaptiveAvgPool3d(2), (2, 2, 3, 3, 3)),
    (lambda: nn.ZeroPad1d(2), (2, 3, 4)),
    (lambda: nn.ZeroPad2d((1, 2, 0, 1)), (2, 3, 4, 4)),
    (lambda: nn.ZeroPad3d(1), (2, 1, 2, 2, 2)),
    (lambda: nn.PixelShuffle(2), (2, 8, 3, 3)),
    (lambda: nn.ChannelShuffle(2), (2, 4, 3, 3)),
    (lambda: nn.MaxPool1d(2), (2, 3, 7)),
    (lambda: nn.MaxPool2d((2, 3), stride=(2, 4)), (2, 3, 6, 8)),
    (lambda: nn.MaxPool2d((2, 3), stride=(3, 2)), (2, 3, 6, 7)),
    (lambda: nn.MaxPool2d(17), (2, 1, 17, 18)),
    (lambda: nn.MaxPool2d(1, stride=2), (2, 3, 5, 5)),
    (lambda: nn.MaxPool2d(2, padding=1), (2, 3, 6, 6)),
    (lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 6, 7)),
    (lambda: nn.MaxPool2d(2, ceil_mode=True, dilation=2), (2, 3, 7, 7)),
    (lambda: nn.MaxPool3d(2), (2, 2, 4, 4, 4)),
    (lambda: nn.AdaptiveMaxPool1d(3), (2, 2, 7)),
    (lambda: nn.AdaptiveMaxPool2d(2), (2, 2, 5, 5)),
    (lambda: nn.AdaptiveMaxPool3d(2), (2, 2, 3, 3, 3)),
    *((activation, (3, 5)) for activation in ACTIVATIONS),
    (lambda: nn.Threshold(0.3, -1.0), (3, 5)),
    (lambda: nn.GELU(approximate="tanh"), (3, 5)),
    (lambda: nn.LeakyReLU(0.3), (3, 4, 2, 2)),
    (Bilinear, (3, 5)),
    (Square, (3, 5)),
    (lambda: nn.PReLU(5), (3, 5)),
    (lambda: nn.GroupNorm(2, 4), (3, 4, 2)),
    (lambda: nn.Softmax(1), (3, 5)),
]
MODES = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def names(cases) -> list[str]:
    return [f"{type(make()).__name__}-{'x'.join(map(str, shape))}-{i}" for i, (make, shape) in enumerate(cases)]


def build(make, training: bool, dtype: torch.dtype = torch.float64) -> nn.Module:
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


def function(module: nn.Module):
    """(x, *p) -> y as PyTorch computes it, in a copy, so that no statistics of the module change."""
    twin = copy.deepcopy(module)
    keys = [name for name, _ in module.named_parameters()]
    return lambda x, *p: functional_call(twin, dict(zip(keys, p, strict=True)), (x.clone(),))


def parameters(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def vjp(f, inputs: list[Tensor], wrt: int | None, v: Tensor) -> list[Tensor]:
    """The gradient of <v, f> with respect to the input (wrt=0) or to everything after it (None), by autograd."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    chosen = leaves[1:] if wrt is None else [leaves[wrt]]
    return list(torch.autograd.grad((f(*leaves) * v).sum(), chosen)) if chosen else []


def jvp(f, x: Tensor, p: list[Tensor], u: Tensor) -> Tensor:
    """The whole Jacobian, row by row from autograd, times u."""
    J = torch.autograd.functional.jacobian(lambda x: f(x, *p), x.detach())
    return torch.tensordot(J, u, dims=u.ndim)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-11) -> None:
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_every_closed_form_is_tested_here():
    elsewhere = {altmin.Recurrent, altmin.Readout, altmin.Sign, altmin.Staircase, altmin.StraightThrough}
    assert set(CLOSED_FORMS) <= {type(make()) for make, _ in CASES} | elsewhere  # test_recurrent.py, test_discrete.py


@MODES
@pytest.mark.parametrize("make, shape", CASES, ids=names(CASES))
def test_a_map_agrees_with_autograd_on_its_module(make, shape, training):
    module = build(make, training)
    f, p, m = function(module), parameters(module), map_of(module)
    x, u = torch.randn(2, *shape, dtype=torch.float64)
    y, saved = m.forward(p, x)
    v = torch.randn_like(y)
    close(y, f(x, *p))
    close(m.pull(p, saved, v), vjp(f, [x, *p], 0, v)[0])
    push = m.push(p, saved, u)
    close(push, jvp(f, x, p, u))
    close((v * push).sum(), (m.pull(p, saved, v) * u).sum())
    close(m.move(p, saved, u)[0], f(x + u, *p) - f(x, *p))
    grads = list(m.grads(p, saved, v))
    expected = vjp(f, [x, *p], None, v)
    assert len(grads) == len(expected)
    for grad, wanted in zip(grads, expected, strict=True):
        close(grad, wanted)


@pytest.mark.parametrize("make, shape", CASES, ids=names(CASES))
def test_a_map_that_selects_hands_on_no_input_twice(make, shape):
    torch.manual_seed(0)
    m = map_of(make())
    if m.selects:
        y, saved = m.forward((), torch.randn(shape))
        assert m.pull((), saved, torch.ones_like(y)).unique().tolist() in ([0.0, 1.0], [1.0])


@MODES
@pytest.mark.parametrize("make, shape", CASES, ids=names(CASES))
def test_after_a_move_a_map_stands_at_the_new_point(make, shape, training):
    module = build(make, training)
    f, p, m = function(module), parameters(module), map_of(module)
    x, u, w = torch.randn(3, *shape, dtype=torch.float64)
    y, saved = m.forward(p, x)
    saved = m.move(p, saved, u)[1]
    v = torch.randn_like(y)
    close(m.pull(p, saved, v), vjp(f, [x + u, *p], 0, v)[0])
    close(m.push(p, saved, w), jvp(f, x + u, p, w))
    close(m.move(p, saved, w)[0], f(x + u + w, *p) - f(x + u, *p))
    for grad, wanted in zip(m.grads(p, saved, v), vjp(f, [x + u, *p], None, v), strict=True):
        close(grad, wanted)


@MODES
@pytest.mark.parametrize("make, shape", CASES, ids=names(CASES))
def test_a_pass_leaves_input_module_and_memory_alone(make, shape, training):
    module = build(make, training)
    before = copy.deepcopy(module.state_dict())
    p, m = parameters(module), map_of(module)
    x, u = torch.randn(2, *shape, dtype=torch.float64)
    kept = x.clone(), u.clone(), [q.clone() for q in p]
    y, saved = m.forward(p, x)
    v = torch.randn_like(y)
    first = m.pull(p, saved, v).clone()
    m.push(p, saved, u), m.move(p, saved, u), m.grads(p, saved, v)
    assert torch.equal(x, kept[0])
    assert torch.equal(u, kept[1])
    assert all(torch.equal(a, b) for a, b in zip(p, kept[2], strict=True))
    assert torch.equal(m.pull(p, saved, v), first), "the memory of the first point must survive the others"
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


@pytest.mark.parametrize(
    "make",
    [
        *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.SiLU, nn.Mish, nn.ReLU6, nn.Hardtanh, nn.Hardswish),
        *(nn.Hardsigmoid, lambda **k: nn.Threshold(0.3, -1.0, **k)),
    ],
    ids=lambda make: make.__name__,
)
def test_an_in_place_activation_gives_what_its_ordinary_twin_gives(make):
    torch.manual_seed(0)
    x, u, v = torch.randn(3, 4, 5, dtype=torch.float64)
    kept = x.clone()
    m, twin = map_of(make(inplace=True)), make()
    y, saved = m.forward((), x)
    assert torch.equal(x, kept), "the code below must not be overwritten"
    close(y, twin(kept))
    close(m.pull((), saved, v), vjp(function(twin), [kept], 0, v)[0])
    close(m.move((), saved, u)[0], twin(kept + u) - twin(kept))


@given(
    batch=st.integers(1, 4), inputs=st.integers(1, 6), outputs=st.integers(1, 6), bias=st.booleans(), seed=st.integers()
)
def test_a_linear_map_of_any_shape_agrees_with_autograd(batch, inputs, outputs, bias, seed):
    torch.manual_seed(seed % 2**31)
    module = nn.Linear(inputs, outputs, bias, dtype=torch.float64)
    x, v = torch.randn(batch, inputs, dtype=torch.float64), torch.randn(batch, outputs, dtype=torch.float64)
    agrees(module, x, v)


@given(
    dims=st.integers(1, 2),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
    bias=st.booleans(),
    size=st.integers(5, 8),
)
def test_a_convolution_of_any_geometry_agrees_with_autograd(
    dims, kernel, stride, padding, dilation, groups, transposed, bias, size
):
    torch.manual_seed(0)
    kind = getattr(nn, f"Conv{'Transpose' * transposed}{dims}d")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
    module = kind(2, 4, kernel, **options).double()
    x = torch.randn(2, 2, *[size] * dims, dtype=torch.float64)
    agrees(module, x, torch.randn_like(module(x)))


def agrees(module: nn.Module, x: Tensor, v: Tensor) -> None:
    f, p, m = function(module), parameters(module), map_of(module)
    u = torch.randn_like(x)
    y, saved = m.forward(p, x)
    close(y, f(x, *p))
    close(m.pull(p, saved, v), vjp(f, [x, *p], 0, v)[0])
    close(m.push(p, saved, u), f(x + u, *p) - f(x, *p))
    for grad, wanted in zip(m.grads(p, saved, v), vjp(f, [x, *p], None, v), strict=True):
        close(grad, wanted)


@given(
    x=st.floats(-30, 30),
    size=st.floats(-12, 1),
    sign=st.sampled_from([-1, 1]),
    activation=st.sampled_from([nn.Tanh, nn.Sigmoid, nn.ReLU, nn.GELU, nn.Softplus, nn.ELU, nn.SiLU]),
)
def test_a_move_of_any_size_is_the_difference_of_the_values(x, size, sign, activation):
    u = sign * 10.0**size
    x, u = torch.tensor([[x]], dtype=torch.float64), torch.tensor([[u]], dtype=torch.float64)
    m = map_of(activation())
    change = m.move((), m.forward((), x)[1], u)[0]
    difference = activation()(x + u) - activation()(x)
    # The plain difference is right to the rounding of the values, a tangent to the square of its length.
    bound = 4e-16 * (activation()(x).abs() + x.abs() + 1) + 1e-6 * u.abs()
    assert (change - difference).abs() <= bound


TINY = [
    *((activation, (6, 5)) for activation in (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU)),
    (lambda: nn.MaxPool2d(2), (6, 3, 4, 4)),
    (lambda: nn.BatchNorm1d(5), (6, 5)),
    (lambda: nn.LayerNorm(5), (6, 5)),
    (lambda: nn.Linear(5, 4), (6, 5)),
    (lambda: nn.Conv2d(3, 2, 3), (6, 3, 4, 4)),
]


@MODES
@pytest.mark.parametrize("size", [1e-10, 1e-6])
@pytest.mark.parametrize("make, shape", TINY, ids=names(TINY))
def test_a_tiny_move_keeps_its_digits_in_float32(make, shape, size, training):
    module = build(make, training, torch.float32)
    torch.manual_seed(1)
    x, u = torch.randn(2, *shape)
    p, m = parameters(module), map_of(module)
    change = m.move(p, m.forward(p, x)[1], size * u)[0]
    f = function(module.double())
    exact = jvp(f, x.double(), [q.double() for q in p], (size * u).double())
    error = (change.double() - exact).norm() / exact.norm()
    # A move of 1e-6 may itself bend: its tangent is then exact to 1e-6 only.
    assert error < 1e-5


@MODES
@pytest.mark.parametrize(
    "kind, shape",
    [
        (nn.Dropout, (40, 50)),
        (nn.Dropout1d, (40, 50, 3)),
        (nn.Dropout2d, (40, 50, 2, 2)),
        (nn.Dropout3d, (40, 50, 1, 2, 2)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_dropout_keeps_one_mask_for_the_whole_step(kind, shape, training):
    torch.manual_seed(0)
    m = map_of(kind(0.3).train(training))
    x, u, v = torch.rand(3, *shape, dtype=torch.float64) + 0.5
    y, saved = m.forward((), x)
    mask = y / x
    close(m.pull((), saved, v), v * mask)
    close(m.push((), saved, u), u * mask)
    change, moved = m.move((), saved, u)
    close(change, u * mask)
    close(m.pull((), moved, v), v * mask)
    close(m.replay((), saved, x)[0], y)
    if not training:
        assert torch.equal(y, x)
        return
    kept = mask > 0
    close(mask[kept], torch.full_like(mask[kept], 1 / 0.7))
    assert 0.6 < kept.double().mean() < 0.8
    if kind is not nn.Dropout:
        per_channel = kept.flatten(2).double().mean(2)
        assert ((per_channel == 0) | (per_channel == 1)).all(), "whole channels fall out together"


@pytest.mark.parametrize("momentum", [0.1, 0.4, None])
@pytest.mark.parametrize("kind, shape", [(nn.BatchNorm1d, (6, 3)), (nn.BatchNorm2d, (6, 3, 2, 2))])
def test_committed_running_statistics_are_those_pytorch_keeps(momentum, kind, shape):
    torch.manual_seed(0)
    module = kind(3, momentum=momentum).double()
    twin, m = copy.deepcopy(module), map_of(module)
    for _ in range(3):
        x = 2 * torch.randn(*shape, dtype=torch.float64) + 1
        twin(x)
        m.commit(m.forward(parameters(module), x)[1])
    for key, value in twin.state_dict().items():
        close(module.state_dict()[key], value)


def test_a_batch_norm_in_evaluation_commits_nothing():
    module = nn.BatchNorm1d(3).eval()
    m = map_of(module)
    m.commit(m.forward(parameters(module), torch.randn(5, 3))[1])
    assert int(module.num_batches_tracked) == 0
    assert torch.equal(module.running_mean, torch.zeros(3))


@pytest.mark.parametrize(
    "module", [nn.RReLU(), nn.AlphaDropout(), nn.FeatureAlphaDropout()], ids=lambda m: type(m).__name__
)
def test_a_module_that_draws_anew_at_each_call_is_refused(module):
    with pytest.raises(TypeError, match=f"{type(module).__name__} draws new numbers.*nn.Dropout"):
        map_of(module)


def test_users_may_register_a_map_of_their_own(monkeypatch):
    class Doubled(AnyModule):
        pass

    monkeypatch.setitem(CLOSED_FORMS, Square, Doubled)
    assert type(map_of(Square())) is Doubled


@pytest.mark.parametrize("size", [1e-2, 1.0, 30.0])
def test_normalisation_moves_of_any_size_are_exact(size):
    """The change of 1/sqrt(var) is written without cancellation; it must still be the change."""
    torch.manual_seed(0)
    module = nn.LayerNorm(7).double()
    x, u = torch.randn(2, 4, 7, dtype=torch.float64)
    m, p = map_of(module), parameters(module)
    change = m.move(p, m.forward(p, x)[1], size * u)[0]
    close(change, F.layer_norm(x + size * u, (7,)) - F.layer_norm(x, (7,)))
