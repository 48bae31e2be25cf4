"""A model has autograd's gradients at share 0, or it is refused in one sentence."""

import copy

import pytest
import torch
from graph_cases import F64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

import altmin


def agrees(model: nn.Module, loss=F.cross_entropy, labels: bool = True, x: Tensor | None = None) -> None:
    """Loss, gradients and buffers of a step are those of autograd on a copy, without the check of the first step."""
    alone, x = copy.deepcopy(model), torch.randn(6, 4, dtype=F64) if x is None else x
    y = torch.randint(3, (6,)) if labels else torch.randn(6, 3, dtype=F64)
    value = loss(alone(x), y)
    wanted = torch.autograd.grad(value, list(alone.parameters()), allow_unused=True, materialize_grads=True)
    codes, weights = altmin.GradientCodes(share=1e-9), altmin.LocalSGD(1.0, momentum=0.0)
    metrics = altmin.AltMin(model, loss=loss, codes=codes, weights=weights, check=False).step(x, y)
    assert float(metrics.loss) == pytest.approx(float(value.detach()), rel=1e-12)
    for ours, theirs, g in zip(model.parameters(), alone.parameters(), wanted, strict=True):
        torch.testing.assert_close(theirs - ours, g, rtol=1e-5, atol=1e-7)
    for ours, theirs in zip(model.buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


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


@pytest.mark.parametrize("loss", [F.l1_loss, huber, F.smooth_l1_loss, hinge, F.cross_entropy, F.mse_loss])
def test_share_bounds_moves_below_a_loss_without_curvature(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    agrees(model, loss, labels=loss in (hinge, F.cross_entropy))


def test_a_step_in_inference_mode_is_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 3))
    am = altmin.AltMin(model)
    with torch.inference_mode(), pytest.raises(ValueError, match="inference_mode"):
        am.step(torch.randn(6, 4), torch.randint(3, (6,)))


class Held(Net):
    """With parameters that are used by themselves, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.embed = nn.Parameter(torch.randn(7, 4)), nn.Embedding(7, 4)
        self.scale, self.norm = nn.Parameter(torch.randn(4)), nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))


def position_first(self: Held, i: Tensor) -> Tensor:
    position = self.table[: i.shape[1]]
    return self.c(torch.tanh(self.a(self.embed(i) + position)).mean(1))


def position_late(self: Held, i: Tensor) -> Tensor:
    position = self.table[: i.shape[1]]
    h = torch.tanh(self.a(self.embed(i)))
    return self.c(torch.tanh(self.b(h) + position).mean(1))


def token_first(self: Held, i: Tensor) -> Tensor:
    token = self.scale.expand(i.shape[0], 1, -1)
    h = torch.cat([token, torch.tanh(self.a(self.embed(i)))], 1)
    return self.c(torch.tanh(self.b(h))[:, 0] + h.mean(1))


def indexed(self: Held, i: Tensor) -> Tensor:
    return self.c(torch.tanh(self.a(self.embed(i)) + self.table[i]).mean(1))


def looked_up(self: Held, i: Tensor) -> Tensor:
    h = torch.tanh(self.a(self.embed(i)))
    return self.c(torch.tanh(self.b(h) + F.embedding(i, self.table)).mean(1))


def masked_mean(self: Held, i: Tensor) -> Tensor:
    h = torch.tanh(self.b(torch.tanh(self.a(self.embed(i)))))
    mask = (i != 0).to(h.dtype).unsqueeze(-1)
    return self.c((h * mask).sum(1) / mask.sum(1).clamp(min=1))


def counted(self: Held, i: Tensor) -> Tensor:
    weight = self.scale * i.shape[1]
    return self.c(torch.tanh(self.a(self.embed(i))).mean(1) * weight)


@pytest.mark.parametrize(
    "forward", [position_first, position_late, token_first, indexed, looked_up, masked_mean, counted]
)
def test_parameters_that_meet_only_sizes_and_indices_are_trained(forward):
    torch.manual_seed(0)
    agrees(type("Text", (Held,), {"forward": forward})().double(), x=torch.randint(7, (6, 5)))


BETWEEN = {
    "mask": lambda self, h: self.b(h) + (h > 0).double() @ self.table[:4],
    "detached": lambda self, h: self.b(h) + h.detach() * self.scale,
    "class": lambda self, h: self.b(h) + self.table[h.argmax(1)],
    "all detached": lambda self, h: (h.detach() + 0.1) + (h.detach() + 0.1) * self.scale,
    "detached once": lambda self, h: (lambda d: d + d * self.scale)(h.detach() + 0.1),
    "unused norm": lambda self, h: (self.norm(h), self.b(h))[1],
}


@pytest.mark.parametrize("name", BETWEEN)
def test_parameters_that_meet_masks_and_detached_values_are_trained(name):
    torch.manual_seed(0)
    agrees(type("Masks", (Held,), {"between": BETWEEN[name]})().double())


BUFFERS = {
    "add_": lambda self, h: (self.mean.add_(1), h)[1],
    "chained": lambda self, h: (self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0)), h)[1],
    "through a view": lambda self, h: (self.mean[:2].add_(1), h)[1],
    "used": lambda self, h: h - self.mean.lerp_(h.detach().mean(0), 0.1),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_a_buffer_that_a_forward_changes_makes_it_one_block(name):
    torch.manual_seed(0)
    kind = type("Running", (Held,), {"between": BUFFERS[name]})
    with pytest.raises(ValueError, match="changes a tensor in place: a buffer, or"):
        altmin.split(kind())
    agrees(nn.Sequential(kind()).double())
    agrees(nn.Sequential(kind()).double().eval())
    agrees(Residual(kind()).double())


def test_autocast_inside_a_forward_makes_it_one_block():
    class Rounded(Net):
        def between(self, h: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.b(h).to(h.dtype)

    with pytest.raises(ValueError, match=r"computes inside torch\.autocast; put that part"):
        altmin.split(Rounded())


def on_layer(model: Net):
    return model.a.register_full_backward_hook(lambda *_: None)


def before_layer(model: Net):
    return model.register_full_backward_pre_hook(lambda *_: None)


def on_parameter(model: Net):
    return model.a.weight.register_hook(lambda g: 2 * g)


def after_gradient(model: Net):
    return model.a.bias.register_post_accumulate_grad_hook(lambda p: None)


def on_all_modules(model: Net):
    return nn.modules.module.register_module_forward_hook(lambda *_: None)


@pytest.mark.parametrize("hook", [on_layer, before_layer, on_parameter, after_gradient, on_all_modules])
def test_hooks_that_no_step_would_run_are_refused(hook):
    torch.manual_seed(0)
    model, batch = Net(), (torch.randn(6, 4), torch.randint(3, (6,)))
    am = altmin.AltMin(model)
    am.step(*batch)
    before = copy.deepcopy(model.state_dict())
    handle = hook(model)
    try:
        with pytest.raises(ValueError, match=r"remove the hook \(nothing was changed\)$"):
            am.step(*batch)
    finally:
        handle.remove()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    am.step(*batch)


REWRITTEN = {
    "weight norm": lambda: nn.utils.weight_norm(nn.Linear(4, 4)),
    "spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", 3),
}


@pytest.mark.parametrize("name", REWRITTEN)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_hooks_that_rewrite_weights_are_part_of_the_model(name):
    torch.manual_seed(0)
    x, y = torch.randn(6, 4, dtype=F64), torch.randint(3, (6,))
    model, twin = (
        nn.Sequential(nn.Linear(4, 4), nn.Tanh(), REWRITTEN[name](), nn.Tanh(), nn.Linear(4, 3)).double()
        for _ in range(2)
    )
    twin.load_state_dict(model.state_dict())
    before = [p.detach().clone() for p in model.parameters()]
    rule = altmin.LocalSGD(1.0, momentum=0.0)
    altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=rule).step(x, y)
    F.cross_entropy(twin(x), y).backward()
    for p, old, q in zip(model.parameters(), before, twin.parameters(), strict=True):
        torch.testing.assert_close(old - p, q.grad)


class Doubled(nn.Linear):
    def __call__(self, x: Tensor) -> Tensor:
        return 2 * super().__call__(x)


def test_a_call_that_a_subclass_overrides_counts():
    torch.manual_seed(0)
    agrees(nn.Sequential(Doubled(4, 4), nn.Tanh(), nn.Linear(4, 3)).double())
    agrees(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Doubled(4, 3)).double())


def test_a_loss_of_parameters_is_refused():
    torch.manual_seed(0)
    model, batch = Net(), (torch.randn(6, 4), torch.randint(3, (6,)))
    before = copy.deepcopy(model.state_dict())
    am = altmin.AltMin(model, loss=lambda o, y: F.cross_entropy(o, y) + model.a.weight.square().sum())
    with pytest.raises(ValueError, match=r"depends on a\.weight besides the output.* weight_decay or l1"):
        am.step(*batch)
    factor = torch.ones((), requires_grad=True)
    with pytest.raises(ValueError, match="depends on a tensor outside the model"):
        altmin.AltMin(model, loss=lambda o, y: factor * F.cross_entropy(o, y)).step(*batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    class Learned(nn.CrossEntropyLoss):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

    with pytest.raises(ValueError, match="has parameters of its own, which nothing would train"):
        altmin.AltMin(model, loss=Learned())
    altmin.AltMin(model, loss=Learned().requires_grad_(False)).step(*batch)


class Counting(Net):
    """Changes one of its attributes in every pass."""

    n = 0

    def __init__(self) -> None:
        super().__init__()
        self.n, self.seen = 0, []

    def between(self, h: Tensor) -> Tensor:
        self.n += 1
        self.seen.append(self.n)
        return h / self.n


class Averaging(Net):
    """One of its layers follows another."""

    def between(self, h: Tensor) -> Tensor:
        with torch.no_grad():
            for p, q in zip(self.b.parameters(), self.a.parameters(), strict=True):
                p.lerp_(q, 0.1)
        return self.b(h)


class Freezing(Net):
    def between(self, h: Tensor) -> Tensor:
        self.b.weight.requires_grad_(False)
        return self.b(h)


class Asking(Net):
    def between(self, h: Tensor) -> Tensor:
        return 2 * h if isinstance(h, Tensor) else h


REFUSED = {
    Counting: "changes the attribute 'n'",
    Averaging: "in place",
    Freezing: "freezes its parameters",
    Asking: "in the output",
}


@pytest.mark.parametrize("make", REFUSED)
def test_as_one_block_too_it_is_refused_where_passes_do_more_than_compute(make):
    torch.manual_seed(0)
    model, batch = nn.Sequential(make()), (torch.randn(6, 4), torch.randint(3, (6,)))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=REFUSED[make]):
        altmin.AltMin(model).step(*batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert make is not Counting or (model[0].n, model[0].seen) == (0, [])


def test_a_module_that_is_never_opened_is_what_it_is():
    torch.manual_seed(0)
    model = Asking().double()
    model.register_forward_hook(lambda *_: None)
    agrees(nn.Sequential(nn.Linear(4, 4).double(), model))


class Overwriting(Net):
    """Works on its input in place, and is not opened."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.relu_() if float(x.detach().sum()) < 1e9 else x)


def test_a_module_may_change_its_input_in_place_and_the_batch_stays():
    torch.manual_seed(0)
    x = torch.randn(6, 4, dtype=F64)
    kept = x.clone()
    agrees(nn.Sequential(nn.Linear(4, 4), Overwriting()).double(), x=x)
    altmin.AltMin(nn.Sequential(Overwriting()).double()).step(x, torch.randint(3, (6,)))
    assert torch.equal(x, kept)


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.inner(x)
        return self.last


def test_an_attribute_that_another_module_sets_is_refused():
    class Reading(Net):
        def __init__(self) -> None:
            super().__init__()
            self.keeping = Keeping()

        def between(self, h: Tensor) -> Tensor:
            self.keeping(h)
            return h + self.keeping.last

    with pytest.raises(ValueError, match="put both into one"):
        altmin.AltMin(Reading()).step(torch.randn(6, 4), torch.randint(3, (6,)))


def test_a_batch_made_in_inference_mode_is_trained_on():
    with torch.inference_mode():
        x = torch.randn(6, 4)
    altmin.AltMin(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))).step(x, torch.randint(3, (6,)))
