"""A model has autograd's gradients at share 0, or it is refused in one sentence."""

import copy

import pytest
import torch
from graph_cases import F64, Net, as_backprop
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

import altmin


def agrees(model: nn.Module, loss=F.cross_entropy, labels: bool = True, x: Tensor | None = None) -> None:
    """A step is backprop's, without the check of the first step."""
    y = torch.randint(3, (6,)) if labels else torch.randn(6, 3, dtype=F64)
    as_backprop(model, torch.randn(6, 4, dtype=F64) if x is None else x, y, loss, atol=1e-7, check=False)


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


def frozen(net: Net, h: Tensor) -> Tensor:
    with torch.no_grad():
        skip = net.b(h)
    return h + skip


def disabled(net: Net, h: Tensor) -> Tensor:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    skip = h.square()
    torch.set_grad_enabled(before)
    return h + skip


@torch.no_grad()
def gate(net: Net, h: Tensor) -> Tensor:
    return torch.sigmoid(net.b(h))


def inference(net: Net, h: Tensor) -> Tensor:
    with torch.inference_mode():
        skip = net.b(h)
    return h + skip.clone()


UNLIKE = {
    "frozen": frozen,
    "disabled": disabled,
    "decorated": lambda net, h: h * gate(net, h),
    "reversed": lambda net, h: Reverse.apply(net.b(h)),
    "reversed, by another name": lambda net, h: reverse(net.b(h)),
    "inference": inference,
}


class Residual(nn.Module):
    """x + inner(x), which is opened."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.first = inner, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + torch.tanh(self.first(x)))


WITHOUT = r"without gradients \(torch\.no_grad or the like\) or by an autograd\.Function of its own"


@pytest.mark.parametrize("outer", [torch.enable_grad, torch.no_grad], ids=["", "no_grad"])
@pytest.mark.parametrize("name", UNLIKE)
def test_what_a_graph_does_not_differentiate_as_the_model_is_refused(name, outer):
    with outer(), pytest.raises(ValueError, match=rf"{WITHOUT}; put that part .*nn\.Sequential\(model\)$"):
        altmin.split(Net(UNLIKE[name]))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", [name for name in UNLIKE if name != "inference"])
def test_as_one_block_and_inside_another_module_it_has_autograds_gradients(name):
    torch.manual_seed(0)
    agrees(nn.Sequential(Net(UNLIKE[name]).double()))
    agrees(Residual(Net(UNLIKE[name])).double())


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
    with pytest.raises(ValueError, match="changes a tensor in place"):
        altmin.split(Net(lambda net, h: (CHANGES[name](h), net.b(h) * h)[1]).double())


def test_a_value_in_memory_of_its_own_may_change_while_others_are_used():
    def changing(net: Net, h: Tensor) -> Tensor:
        y = F.softmax(h, 1) + torch.where(h > 0, h, -h).exp()
        y.mul_(2)
        z = h.clone()
        z += y
        return net.b(z) * h

    torch.manual_seed(0)
    agrees(Net(changing).double())


def pruned(layer: nn.Module) -> nn.Module:
    return prune.remove(prune.identity(layer, "weight"), "weight")


def unparametrized(layer: nn.Module) -> nn.Module:
    return parametrize.remove_parametrizations(parametrizations.weight_norm(layer), "weight")


def fixed(layer: nn.Module, name: str) -> nn.Module:
    value = layer.get_parameter(name).detach() + 1
    delattr(layer, name)
    layer.register_buffer(name, value)
    return layer


CHANGED = [pruned, lambda layer: fixed(layer, "bias"), lambda layer: fixed(layer, "weight")]
MAKE = [*(lambda: nn.Linear(4, 4), lambda: nn.LayerNorm(4), lambda: nn.BatchNorm1d(4)), lambda: nn.Conv1d(4, 4, 1)]


@pytest.mark.parametrize(
    "make, change", [*((make, change) for make in MAKE for change in CHANGED), (MAKE[3], unparametrized)]
)
def test_parameters_are_found_by_their_names(make, change):
    torch.manual_seed(0)
    layer = make()
    with torch.no_grad():
        layer.weight.add_(torch.randn_like(layer.weight))
        layer.bias.add_(torch.randn_like(layer.bias))
    layer = change(layer)
    body = (nn.Unflatten(1, (4, 1)), layer, nn.Flatten()) if make is MAKE[3] else (layer,)
    agrees(nn.Sequential(nn.Linear(4, 4), *body, nn.Tanh(), nn.Linear(4, 3)).double())


def hinge(output: Tensor, y: Tensor) -> Tensor:
    return F.multi_margin_loss(output, y)


def huber(output: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(output, y, delta=0.01)


@pytest.mark.parametrize("loss", [F.l1_loss, huber, F.smooth_l1_loss, hinge, F.cross_entropy, F.mse_loss])
def test_share_bounds_moves_below_a_loss_without_curvature(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    agrees(model, loss, labels=loss in (hinge, F.cross_entropy))


def masked(net: Net, h: Tensor) -> Tensor:
    with torch.no_grad():
        mask = (h > 0) & (h < 1)
    return h * mask


BETWEEN = {
    "mask without gradient": masked,
    "mask": lambda net, h: net.b(h) + (h > 0).double() @ net.table[:4],
    "detached": lambda net, h: net.b(h) + h.detach() * net.scale,
    "class": lambda net, h: net.b(h) + net.table[h.argmax(1)],
    "all detached": lambda net, h: (h.detach() + 0.1) + (h.detach() + 0.1) * net.scale,
    "detached once": lambda net, h: (lambda d: d + d * net.scale)(h.detach() + 0.1),
    "unused norm": lambda net, h: (net.norm(h), net.b(h))[1],
}


@pytest.mark.parametrize("name", BETWEEN)
def test_parameters_that_meet_masks_and_detached_values_are_trained(name):
    torch.manual_seed(0)
    agrees(Net(BETWEEN[name]).double())


def token_first(net: Net, i: Tensor) -> Tensor:
    token = net.scale.expand(i.shape[0], 1, -1)
    h = torch.cat([token, torch.tanh(net.a(net.embed(i)))], 1)
    return net.c(torch.tanh(net.b(h))[:, 0] + h.mean(1))


def masked_mean(net: Net, i: Tensor) -> Tensor:
    h = torch.tanh(net.b(torch.tanh(net.a(net.embed(i)))))
    mask = (i != 0).to(h.dtype).unsqueeze(-1)
    return net.c((h * mask).sum(1) / mask.sum(1).clamp(min=1))


def read(net: Net, i: Tensor) -> Tensor:
    return torch.tanh(net.a(net.embed(i)))


TEXTS = {
    "position first": lambda net, i: net.c(torch.tanh(net.a(net.embed(i) + net.table[: i.shape[1]])).mean(1)),
    "position late": lambda net, i: net.c(torch.tanh(net.b(read(net, i)) + net.table[: i.shape[1]]).mean(1)),
    "token first": token_first,
    "indexed": lambda net, i: net.c(torch.tanh(net.a(net.embed(i)) + net.table[i]).mean(1)),
    "looked up": lambda net, i: net.c(torch.tanh(net.b(read(net, i)) + F.embedding(i, net.table)).mean(1)),
    "masked mean": masked_mean,
    "counted": lambda net, i: net.c(read(net, i).mean(1) * (net.scale * i.shape[1])),
}


@pytest.mark.parametrize("name", TEXTS)
def test_parameters_that_meet_only_sizes_and_indices_are_trained(name):
    torch.manual_seed(0)
    text = type("Text", (Net,), {"forward": TEXTS[name]})()
    agrees(text.double(), x=torch.randint(7, (6, 5)))


BUFFERS = {
    "add_": lambda net, h: (net.mean.add_(1), h)[1],
    "chained": lambda net, h: (net.mean.mul_(0.9).add_(0.1 * h.detach().mean(0)), h)[1],
    "through a view": lambda net, h: (net.mean[:2].add_(1), h)[1],
    "used": lambda net, h: h - net.mean.lerp_(h.detach().mean(0), 0.1),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_a_buffer_that_a_forward_changes_makes_it_one_block(name):
    torch.manual_seed(0)
    between = BUFFERS[name]
    with pytest.raises(ValueError, match="changes a tensor in place: a buffer, or"):
        altmin.split(Net(between))
    agrees(nn.Sequential(Net(between)).double())
    agrees(nn.Sequential(Net(between)).double().eval())
    agrees(Residual(Net(between)).double())


def test_autocast_inside_a_forward_makes_it_one_block():
    def rounded(net: Net, h: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net.b(h).to(h.dtype)

    with pytest.raises(ValueError, match=r"computes inside torch\.autocast; put that part"):
        altmin.split(Net(rounded))


HOOKS = {
    "on a layer": lambda net: net.a.register_full_backward_hook(lambda *_: None),
    "before a layer": lambda net: net.register_full_backward_pre_hook(lambda *_: None),
    "on a parameter": lambda net: net.a.weight.register_hook(lambda g: 2 * g),
    "after a gradient": lambda net: net.a.bias.register_post_accumulate_grad_hook(lambda p: None),
    "on all modules": lambda net: nn.modules.module.register_module_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_that_no_step_would_run_are_refused(name):
    torch.manual_seed(0)
    model, batch = Net(), (torch.randn(6, 4), torch.randint(3, (6,)))
    am = altmin.AltMin(model)
    am.step(*batch)
    before = copy.deepcopy(model.state_dict())
    handle = HOOKS[name](model)
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


def counting(net: Net, h: Tensor) -> Tensor:
    net.count += 1
    net.seen.append(net.count)
    return h / net.count


def averaging(net: Net, h: Tensor) -> Tensor:
    """One layer follows another."""
    with torch.no_grad():
        for p, q in zip(net.b.parameters(), net.a.parameters(), strict=True):
            p.lerp_(q, 0.1)
    return net.b(h)


def asking(net: Net, h: Tensor) -> Tensor:
    return 2 * h if isinstance(h, Tensor) else h


REFUSED = {
    counting: "changes the attribute 'count'",
    averaging: "in place",
    (lambda net, h: (net.b.weight.requires_grad_(False), net.b(h))[1]): "grad",
    asking: "in the output",
}


@pytest.mark.parametrize("between", REFUSED)
def test_as_one_block_too_it_is_refused_where_passes_do_more_than_compute(between):
    torch.manual_seed(0)
    model, batch = nn.Sequential(Net(between)), (torch.randn(6, 4), torch.randint(3, (6,)))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises((ValueError, RuntimeError), match=REFUSED[between]):
        altmin.AltMin(model).step(*batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (model[0].count, model[0].seen) == (0, [])


def test_a_module_that_is_never_opened_is_what_it_is():
    torch.manual_seed(0)
    model = Net(asking).double()
    model.register_forward_hook(lambda *_: None)
    agrees(nn.Sequential(nn.Linear(4, 4).double(), model))


class Overwriting(nn.Linear):
    """Works on its input in place, and is not opened."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.relu_() if float(x.detach().sum()) < 1e9 else x)


def test_a_module_may_change_its_input_in_place_and_the_batch_stays():
    torch.manual_seed(0)
    x = torch.randn(6, 4, dtype=F64)
    kept = x.clone()
    agrees(nn.Sequential(nn.Linear(4, 4), Overwriting(4, 3)).double(), x=x)
    altmin.AltMin(nn.Sequential(Overwriting(4, 3)).double()).step(x, torch.randint(3, (6,)))
    assert torch.equal(x, kept)


class Keeping(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.last = super().forward(x)
        return self.last


def test_an_attribute_that_another_module_sets_is_refused():
    model = Net(lambda net, h: (net.b(h), h + net.b.last)[1])
    model.b = Keeping(4, 4)
    model.b.last = None
    with pytest.raises(ValueError, match="put both into one"):
        altmin.AltMin(model).step(torch.randn(6, 4), torch.randint(3, (6,)))


def test_a_batch_made_in_inference_mode_is_trained_on():
    with torch.inference_mode():
        x = torch.randn(6, 4)
    altmin.AltMin(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))).step(x, torch.randint(3, (6,)))
