"""Modules of one's own: one graph for each pass, attention, buffers, random numbers, integer inputs."""

import copy

import pytest
import torch
from calculus_cases import (
    OTHER,
    close,
    contract,
    function,
    gradients,
    jvp,
    outcome,
    parameters,
    stands_at,
)
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus import AnyModule, map_of

TestMaps = contract(OTHER)


class Attention(nn.Module):
    """x + attention(x), by the function that a user would call."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.qkv, self.dropout = nn.Linear(4, 12), dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unsqueeze(1) for t in self.qkv(x).chunk(3, -1))
        p = self.dropout if self.training else 0.0
        return x + F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True).squeeze(1)


class MultiHead(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=dropout, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0]


def encoder_layer(dropout: float = 0.0) -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=True, activation="gelu")


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


ATTENTION = pytest.mark.parametrize("make", [Attention, MultiHead, encoder_layer, Memory])


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@ATTENTION
@torch.no_grad()
def test_attention_and_recurrence_have_all_derivatives(make, training):
    torch.manual_seed(0)
    module = make().double().train(training)
    f, p, m = function(module), parameters(module), map_of(module)
    x, u = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    y, saved = m.forward(p, x)
    with torch.enable_grad():
        close(y, f(x, *p).detach())
        stands_at(m, saved, f, x, p)
    if make is not Memory:  # torch has no forward derivative of it
        close(outcome(m.functional(), p, x, u, y), outcome(m, p, x, u, y), 1e-10)


class Gate(nn.Module):
    """x * s(W x), where torch has no second derivative of s; its random numbers are drawn again by every pass."""

    def __init__(self):
        super().__init__()
        self.inner, self.dropout = nn.Linear(4, 4, bias=False), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.dropout(self.inner(x)))


@torch.no_grad()
def test_the_first_step_uses_the_kernels_of_later_ones():
    def trainer():
        torch.manual_seed(0)
        return altmin.AltMin(nn.Sequential(nn.Linear(4, 4), Attention(), nn.Tanh(), nn.Linear(4, 3)))

    batches = [(torch.randn(5, 20, 4), torch.randint(3, (5, 20))) for _ in range(4)]
    first, later = trainer(), trainer()
    for x, y in batches[:3]:
        first.step(x, y)
    later.model.load_state_dict(first.model.state_dict())
    later.load_state_dict(first.state_dict())
    for am in (first, later):
        am.step(*batches[3])
    assert all(map(torch.equal, first.model.parameters(), later.model.parameters()))


def test_operations_without_second_derivative_have_a_jvp():
    torch.manual_seed(0)
    module = Gate().double()
    m, p, (x, u) = map_of(module), parameters(module), 2 * torch.randn(2, 50, 4, dtype=torch.float64)
    random = torch.get_rng_state()
    y, saved = m.forward(p, x)
    torch.set_rng_state(random)
    dropped = module.dropout(torch.ones_like(x))
    z = dropped * module.inner(x)  # s(z) is (z + 3) / 6 between -3 and 3
    slope = ((z > -3) & (z < 3)) / 6 * dropped
    close(y, x * (z / 6 + 0.5).clamp(0, 1))
    close(m.jvp(p, saved, u), u * (z / 6 + 0.5).clamp(0, 1) + x * slope * module.inner(u))


class Doubled(torch.autograd.Function):
    """2 x, with a first derivative alone."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v: Tensor) -> Tensor:
        return 2 * v


class Once(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(super().forward(x))


def test_operations_with_one_derivative_alone_are_refused():
    am = altmin.AltMin(nn.Sequential(nn.Linear(4, 4), Once(4, 3), nn.Linear(3, 3)))
    with pytest.raises(ValueError, match="Once has neither second nor forward derivatives"):
        am.step(torch.randn(5, 4), torch.arange(5) % 3)


class Normed(nn.Module):
    """Batch norm inside, and a buffer that the module replaces by another tensor."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.inner(x))
        self.largest = torch.maximum(self.largest, y.abs().max())
        return x + y


def test_buffers_change_by_commit_alone_and_once():
    torch.manual_seed(0)
    module = Normed().double()
    pytorch, m, p = copy.deepcopy(module), map_of(module), parameters(module)
    before = copy.deepcopy(module.state_dict())
    x, u = torch.randn(2, 6, 3, dtype=torch.float64)
    y, saved = m.forward(p, x)
    m.vjp(p, saved, y), m.jvp(p, saved, u), m.replay(p, saved, u), m.grads(p, saved, y)
    kept = m.kept(saved)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    m.commit(kept)
    pytorch(x)
    for key, value in pytorch.state_dict().items():
        close(module.state_dict()[key], value.detach())
    assert m.mixes_samples
    module.eval(), pytorch.eval()
    m.commit(m.kept(m.forward(p, 2 * x)[1]))
    pytorch(2 * x)
    for key, value in pytorch.state_dict().items():
        close(module.state_dict()[key], value.detach())
    assert not m.mixes_samples


class Places(nn.Module):
    """Adds a number to each entry by its place; the numbers are made anew for rows of another length."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("places", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.places.shape[0] != x.shape[1]:
            self.places = torch.arange(x.shape[1]).to(x)
        return x.tanh() + self.scale * self.places


def test_a_buffer_of_another_shape_is_refused_until_called_once():
    model = nn.Sequential(nn.Linear(4, 5), Places(), nn.Linear(5, 2)).double()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.arange(6) % 2
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(lr=1.0))
    with pytest.raises(ValueError, match="'places'"):
        am.step(x, y)
    assert model[1].places.shape == (3,)
    F.cross_entropy(model(x), y).backward()
    expected = [p.detach() - p.grad for p in model.parameters()]
    am.step(x, y)
    for p, after in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), after)


class Dropped(nn.Module):
    """Dropout as a module, and by a function that no inspection of submodules finds."""

    def __init__(self):
        super().__init__()
        self.inner, self.dropout = nn.Linear(6, 6), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(torch.tanh(self.inner(F.dropout(x, 0.3, self.training))))


class Noise(nn.Module):
    """Random numbers of a size that is learned; the input gives only their shape."""

    def __init__(self):
        super().__init__()
        self.size = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.size * torch.randn_like(x)


@pytest.mark.parametrize(
    "make, shape",
    [
        (Dropped, (4, 6)),
        (lambda: Attention(0.5), (4, 5, 4)),
        (lambda: MultiHead(0.5), (4, 5, 4)),
        (lambda: encoder_layer(0.5), (4, 5, 4)),
        (lambda: nn.Sequential(nn.Dropout(0.5), nn.Tanh()), (4, 6)),
        (Noise, (4, 6)),
    ],
    ids=["dropped", "attention", "multi-head", "encoder layer", "no parameters", "noise"],
)
@torch.no_grad()
def test_all_operations_of_a_step_see_the_same_random_numbers(make, shape):
    torch.manual_seed(0)
    module = make().double()
    m, p = AnyModule(module), parameters(module)
    x, u = torch.randn(2, *shape, dtype=torch.float64)
    state = torch.get_rng_state()

    def f(x: Tensor, *p: Tensor) -> Tensor:
        """The one function that the numbers of the first pass make."""
        torch.set_rng_state(state)
        return function(module)(x, *p)

    y, saved = m.forward(p, x)
    drawn = torch.get_rng_state()
    torch.rand(3)  # as another module of the chain would
    after = torch.get_rng_state()
    other, moved = m.replay(p, saved, x - u)
    again = m.replay(p, saved, x)[0]
    found = [m.jvp(p, saved, u), m.vjp(p, saved, y), *m.grads(p, saved, y)]
    assert torch.equal(torch.get_rng_state(), after), "a repeated pass draws nothing of its own"
    assert not torch.equal(drawn, state)
    close(y, f(x, *p))
    assert torch.equal(torch.get_rng_state(), drawn), "a pass draws as much as the module does"
    close(again, y)
    close(other, f(x - u, *p))
    with torch.enable_grad():
        close([*found], [jvp(f, x, p, u), *gradients(f, x, p, y)])
        stands_at(m, moved, f, x - u, p)


def test_the_derivative_of_what_does_not_depend_on_its_input_is_zero():
    class Above(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x > 0).double()

    m, x = map_of(Above()), torch.randn(3, 5, dtype=torch.float64)
    y, saved = m.forward((), x)
    close(y, x.sign().clamp_min(0))
    assert not m.vjp((), saved, x).any()
    assert not m.jvp((), saved, x).any()


def test_each_step_draws_random_numbers_of_its_own():
    torch.manual_seed(0)
    m = map_of(Dropped())
    p, x = parameters(m.module), torch.randn(4, 6)
    assert not torch.equal(m.forward(p, x)[0], m.forward(p, x)[0])
    m.module.eval()
    assert m.forward(p, x)[1].rng is None, "where nothing is drawn nothing is kept"


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x.sin(), 0.5, training=self.training)


@pytest.mark.parametrize("inner", [Noisy(), nn.TransformerEncoderLayer(4, 2, 8)], ids=lambda m: type(m).__name__)
def test_random_numbers_of_ones_own_module_are_refused_where_each_pass_would_draw_others(inner):
    model = nn.Sequential(nn.Linear(3, 4), inner, nn.Linear(4, 2)).double()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randint(2, (5,))
    members = [altmin.AltMin(copy.deepcopy(model)) for _ in range(2)]
    with pytest.raises(ValueError, match="draws random numbers"):
        altmin.Ensemble(members).step(x, y)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in members[1].model.state_dict().items())
    with pytest.raises(ValueError, match="draws random numbers"):
        altmin.runners.capture.captured(altmin.AltMin(copy.deepcopy(model)), False).run(x, y)
    altmin.Ensemble([altmin.AltMin(copy.deepcopy(model).eval()) for _ in range(2)]).step(x, y)


class Aliases(nn.Module):
    """One module under two names, and two modules with one parameter and one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c, self.d = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.b, self.d.weight, self.d.running_mean = self.a, self.c.weight, self.c.running_mean

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1000:
            return x
        return x + self.b(torch.tanh(self.a(x))) + self.d(torch.tanh(self.c(x)))


def test_what_has_two_names_stays_the_models_own_and_gets_one_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), Aliases(), nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    alone, held = copy.deepcopy(model), [*model.parameters(), *model.buffers()]
    wanted = torch.autograd.grad(F.cross_entropy(alone(x), y), list(alone.parameters()))
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=1e-9), weights=altmin.LocalSGD(1.0, momentum=0.0))
    am.step(x, y)
    assert all(now is then for now, then in zip([*model.parameters(), *model.buffers()], held, strict=True))
    for ours, theirs, g in zip(model.parameters(), alone.parameters(), wanted, strict=True):
        torch.testing.assert_close(theirs - ours, g, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close([*model.buffers()], [*alone.buffers()], rtol=1e-12, atol=1e-12)
    am.step(x, y)
