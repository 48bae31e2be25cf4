"""A model has autograd's gradients at share 0, or it is refused in one sentence."""

import copy

import pytest
import torch
from graph_cases import F64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

import altmin


def agrees(model: nn.Module, loss=F.cross_entropy, labels: bool = True, **options) -> None:
    """Loss and gradients of a step are those of autograd on a copy."""
    alone, x = copy.deepcopy(model), torch.randn(6, 4, dtype=F64)
    y = torch.randint(3, (6,)) if labels else torch.randn(6, 3, dtype=F64)
    value = loss(alone(x), y)
    wanted = torch.autograd.grad(value, list(alone.parameters()), allow_unused=True, materialize_grads=True)
    codes, weights = altmin.GradientCodes(share=1e-9, **options), altmin.LocalSGD(1.0, momentum=0.0)
    metrics = altmin.AltMin(model, loss=loss, codes=codes, weights=weights).step(x, y)
    assert float(metrics.loss) == pytest.approx(float(value.detach()), rel=1e-12)
    for ours, theirs, g in zip(model.parameters(), alone.parameters(), wanted, strict=True):
        torch.testing.assert_close(theirs - ours, g, rtol=1e-5, atol=1e-7)


class Reverse(torch.autograd.Function):
    """The identity, whose backward is its negative."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, v: Tensor) -> Tensor:
        return -v


class Unrecorded(Reverse):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x


reverse = Unrecorded.apply


class Net(nn.Module):
    """A layer, what a subclass does after it, and another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.between(self.a(x))))

    def between(self, h: Tensor) -> Tensor:
        return h


class Frozen(Net):
    def between(self, h: Tensor) -> Tensor:
        with torch.no_grad():
            skip = self.b(h)
        return h + skip


class Disabled(Net):
    def between(self, h: Tensor) -> Tensor:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        skip = h.square()
        torch.set_grad_enabled(before)
        return h + skip


class Decorated(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * self.gate(h)

    @torch.no_grad()
    def gate(self, h: Tensor) -> Tensor:
        return torch.sigmoid(self.b(h))


class Inference(Net):
    def between(self, h: Tensor) -> Tensor:
        with torch.inference_mode():
            skip = self.b(h)
        return h + skip.clone()


class Reversed(Net):
    def between(self, h: Tensor) -> Tensor:
        return Reverse.apply(self.b(h))


class ReversedUnrecorded(Net):
    def between(self, h: Tensor) -> Tensor:
        return reverse(self.b(h))


class Residual(nn.Module):
    """x + inner(x), which is opened."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.first = inner, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + torch.tanh(self.first(x)))


WITHOUT = r"without gradients \(torch\.no_grad or the like\) or by an autograd\.Function of its own"


@pytest.mark.parametrize("outer", [torch.enable_grad, torch.no_grad], ids=["", "no_grad"])
@pytest.mark.parametrize("make", [Frozen, Disabled, Decorated, Inference, Reversed, ReversedUnrecorded])
def test_what_a_graph_does_not_differentiate_as_the_model_is_refused(make, outer):
    with outer(), pytest.raises(ValueError, match=rf"{WITHOUT}; put that part .*nn\.Sequential\(model\)$"):
        altmin.split(make())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("make", [Frozen, Disabled, Decorated, Reversed, ReversedUnrecorded])
def test_as_one_block_and_inside_another_module_it_has_autograds_gradients(make):
    torch.manual_seed(0)
    agrees(nn.Sequential(make().double()))
    agrees(Residual(make()).double())


class Masked(Net):
    def between(self, h: Tensor) -> Tensor:
        with torch.no_grad():
            mask = (h > 0) & (h < 1)
        return h * mask


def test_a_mask_has_no_gradient_with_or_without_no_grad():
    torch.manual_seed(0)
    agrees(Masked().double())


CHANGES = {
    "ravel": lambda h: h.ravel().mul_(2),
    "swapdims": lambda h: torch.swapdims(h, 0, 1).mul_(2),
    "hsplit": lambda h: h.hsplit(2)[0].mul_(2),
    "unfold": lambda h: h.unfold(1, 2, 2).mul_(2),
    "as_strided": lambda h: h.as_strided((6,), (4,)).mul_(2),
    "atleast_2d": lambda h: torch.atleast_2d(h).mul_(2),
    "double": lambda h: h.double().mul_(2),
    "T": lambda h: h.mT.mul_(2),
    "pos": lambda h: (+h).mul_(2),
    "broadcast": lambda h: torch.broadcast_tensors(h, h)[0].mul_(2),
    "dropout": lambda h: F.dropout(h, 0.0).mul_(2),
    "einsum": lambda h: torch.einsum("ij->ji", h).mul_(2),
    "out": lambda h: torch.mul(h, 2, out=h),
    "foreach": lambda h: torch._foreach_mul_([h], 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_through_a_view_of_any_kind_is_refused(name):
    class Changing(Net):
        def between(self, h: Tensor) -> Tensor:
            CHANGES[name](h)
            return self.b(h) * h

    torch.manual_seed(0)
    with pytest.raises(ValueError, match="changes a tensor in place"):
        altmin.split(Changing().double())


def test_a_value_in_memory_of_its_own_may_change_while_others_are_used():
    class Changing(Net):
        def between(self, h: Tensor) -> Tensor:
            y = F.softmax(h, 1) + torch.where(h > 0, h, -h).exp()
            y.mul_(2)
            z = h.clone()
            z += y
            return self.b(z) * h

    torch.manual_seed(0)
    agrees(Changing().double())


def pruned(layer: nn.Module) -> nn.Module:
    return prune.remove(prune.identity(layer, "weight"), "weight")


def unparametrized(layer: nn.Module) -> nn.Module:
    return parametrize.remove_parametrizations(parametrizations.weight_norm(layer), "weight")


def with_fixed_bias(layer: nn.Module) -> nn.Module:
    bias = layer.bias.detach() + 1
    del layer.bias
    layer.register_buffer("bias", bias)
    return layer


def with_fixed_weight(layer: nn.Module) -> nn.Module:
    weight = layer.weight.detach() + 1
    del layer.weight
    layer.register_buffer("weight", weight)
    return layer


@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 4), lambda: nn.LayerNorm(4), lambda: nn.BatchNorm1d(4)])
@pytest.mark.parametrize("change", [pruned, with_fixed_bias, with_fixed_weight])
def test_parameters_are_found_by_their_names(make, change):
    torch.manual_seed(0)
    layer = make()
    with torch.no_grad():
        layer.weight.add_(torch.randn_like(layer.weight))
        layer.bias.add_(torch.randn_like(layer.bias))
    agrees(nn.Sequential(nn.Linear(4, 4), change(layer), nn.Tanh(), nn.Linear(4, 3)).double())


@pytest.mark.parametrize("change", [pruned, unparametrized])
def test_convolutions_find_their_parameters_by_name(change):
    torch.manual_seed(0)
    shape, layer = nn.Unflatten(1, (1, 4)), change(nn.Conv1d(1, 3, 3))
    agrees(nn.Sequential(shape, layer, nn.ReLU(), nn.Flatten(), change(nn.Linear(6, 3))).double())


def hinge(output: Tensor, y: Tensor) -> Tensor:
    return F.multi_margin_loss(output, y)


def huber(output: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(output, y, delta=0.01)


@pytest.mark.parametrize("options", [{}, {"steps": 3}], ids=["one step", "three"])
@pytest.mark.parametrize("loss", [F.l1_loss, huber, F.smooth_l1_loss, hinge, F.cross_entropy, F.mse_loss])
def test_share_bounds_moves_below_a_loss_without_curvature(loss, options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    agrees(model, loss, labels=loss in (hinge, F.cross_entropy), **options)


def test_a_step_in_inference_mode_is_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 3))
    am = altmin.AltMin(model)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"inside torch\.inference_mode"):
        am.step(torch.randn(6, 4), torch.randint(3, (6,)))
