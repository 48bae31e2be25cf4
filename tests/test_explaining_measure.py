"""A step on a copy is the trainer's own, its gradients are held against autograd's, and the model stays as it is."""

import copy
import math

import pytest
import torch
from explained import batch, explained, net, noisy_net
from torch import Tensor, nn

import altmin
from altmin import models


def test_neither_model_nor_random_numbers_nor_solver_change() -> None:
    model, (x, y) = noisy_net(), batch()
    model(x).sum().backward()
    codes, penalty = altmin.GradientCodes(share=0.3), altmin.Penalty(2.0)
    tensors = {**model.state_dict(), "x": x, "y": y, **{n: p.grad for n, p in model.named_parameters()}}
    before, settings = copy.deepcopy(tensors), (dict(vars(codes)), dict(vars(penalty)))
    modules, state = [dict(vars(m)) for m in model.modules()], torch.get_rng_state()
    altmin.explain(model, x, y, codes=codes, penalty=penalty)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensors[name], before[name]) for name in before)
    assert (dict(vars(codes)), dict(vars(penalty))) == settings
    for module, attributes in zip(model.modules(), modules, strict=True):
        assert set(vars(module)) == set(attributes)
        assert all(vars(module)[name] is value for name, value in attributes.items())


@pytest.mark.cuda
def test_on_a_gpu_neither_model_nor_random_numbers_change() -> None:
    model, (x, y) = noisy_net().cuda(), [t.cuda() for t in batch()]
    before, state, cpu = copy.deepcopy(model.state_dict()), torch.cuda.get_rng_state(), torch.get_rng_state()
    found = altmin.explain(model, x, y, share=0.0)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.equal(torch.get_rng_state(), cpu)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [row.cosine for row in found.rows] == pytest.approx([1, 1], abs=1e-5), "the masks of dropout are the same"


def convolutional() -> nn.Sequential:
    torch.manual_seed(0)
    pooled = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Flatten()
    return nn.Sequential(*pooled, nn.Linear(36, 3))


def gpt() -> nn.Sequential:
    torch.manual_seed(0)
    return models.gpt(1, 8, 1, 6, 4)


CASES = {
    "rectified": (net, batch()[0], batch()[1]),
    "dropout and batch norm": (noisy_net, batch()[0], batch()[1]),
    "convolutional": (convolutional, torch.randn(24, 1, 8, 8), batch()[1]),
    "gpt": (gpt, torch.arange(30).view(5, 6) % 4, torch.arange(1, 31).view(5, 6) % 4),
}


@pytest.mark.parametrize("case", CASES)
def test_as_the_share_goes_to_zero_every_gradient_is_backprops(case: str) -> None:
    make, x, y = CASES[case]
    for share, close in ((0.0, 1e-5), (1e-4, 1e-3)):
        found = altmin.explain(make(), x, y, share=share)
        assert len(found.rows) > 1
        for row in found.rows:
            assert row.cosine == pytest.approx(1, abs=close)
            assert row.gradient == pytest.approx(row.backprop, rel=10 * close)
            assert row.taken == pytest.approx(0, abs=2 * share + 1e-6)
    full = altmin.explain(make(), x, y, share=1.0, penalty=1e-3, order="codes-first").rows
    assert min(row.cosine for row in full) < 0.999, "where the share is small, it is the share that matters"


def test_a_net_of_one_block_is_backprop() -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Sequential(nn.Linear(5, 3)), batch()
    (row,) = altmin.explain(model, x, y).rows
    value = nn.functional.cross_entropy(model(x), y)
    norm = math.sqrt(sum(float(g.square().sum()) for g in torch.autograd.grad(value, model.parameters())))
    assert row.gradient == pytest.approx(norm, rel=1e-5)
    assert row.backprop == pytest.approx(norm, rel=1e-5)
    assert row.cosine == pytest.approx(1, abs=1e-6)
    assert (row.movement, row.length, row.residual, row.dead) == (None,) * 4


def test_movement_residual_and_change_are_those_of_the_trainers_step() -> None:
    model, (x, y) = net(), batch()
    found = altmin.explain(model, x, y, lr=0.02, share=0.5)
    codes = [model[:1](x).detach(), model[:3](x).detach()]
    before = [torch.cat([p.flatten() for p in model[i].parameters()]).detach() for i in (0, 2, 4)]
    metrics = altmin.methods.create("am-adam", model, lr=0.02, share=0.5).step(x, y)
    after = [torch.cat([p.flatten() for p in model[i].parameters()]).detach() for i in (0, 2, 4)]
    for row, code, moved, residual in zip(found.rows, codes, metrics.movements, metrics.residuals, strict=False):
        root = math.sqrt(code.numel()) / float(code.norm())
        assert row.movement == pytest.approx(moved * root, rel=1e-4)
        assert row.residual == pytest.approx(residual * root, rel=1e-4)
    for row, old, new in zip(found.rows, before, after, strict=True):
        assert row.change == pytest.approx(float((new - old).norm() / old.norm()), rel=1e-4)
    assert found.facts.loss == pytest.approx(float(metrics.loss))


def test_the_length_and_what_it_took_are_those_of_the_line_search() -> None:
    """Linear net with squared error: o = W2 c, H = 2/(n k) I, so a = |g|^2 / (2/(nk) |W2 g|^2 + 2 mu / n |g|^2)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Linear(4, 2, bias=False))
    x, y, mu = torch.randn(6, 5), torch.randn(6, 2), 0.7
    n, k, W = 6, 2, model[1].weight.detach()
    delta = (2 / (n * k) * (model(x) - y)).detach()
    g = delta @ W
    Jg = g @ W.T
    a = float(g.square().sum() / (2 / (n * k) * Jg.square().sum() + 2 * mu / n * g.square().sum()))
    below, above = altmin.explain(model, x, y, loss=nn.MSELoss(), share=1.0, penalty=mu).rows
    assert below.length == pytest.approx(a, rel=1e-4)
    assert above.taken == pytest.approx(float((2 / (n * k) * a * Jg).norm() / delta.norm()), rel=1e-4)
    assert above.taken > 0.05, "or the bound would be tested"
    short = altmin.explain(model, x, y, loss=nn.MSELoss(), share=0.05, penalty=mu).rows
    assert short[1].taken == pytest.approx(0.05, rel=1e-3)
    assert short[0].length < a


def test_weights_that_go_first_leave_the_first_block_backprops_gradient() -> None:
    """Its input is the data, which do not move, and its residual is all that is asked."""
    first, *_ = explained(net(), order="weights-first", share=1.0).rows
    assert first.cosine == pytest.approx(1, abs=1e-6)
    assert explained(net(), order="codes-first", share=1.0).rows[1].cosine < 0.999


def test_a_layer_of_dead_units_is_seen_and_gets_no_gradient() -> None:
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100)
    first, *rest = explained(model).rows
    assert (first.dead, first.gradient, first.backprop, first.cosine, first.change) == (1.0, 0.0, 0.0, None, 0.0)
    assert all(row.gradient > 0 for row in rest)
    with torch.no_grad():
        model[0].bias[:3] = torch.tensor([100, 100, 0])  # the third is above 0 for some samples
    assert 0 < (model[0](batch()[0])[:, 2] > 0).sum() < 24
    assert explained(model).rows[0].dead == 5 / 8


def test_units_of_a_convolution_are_its_channels() -> None:
    model = convolutional()
    with torch.no_grad():
        model[1].bias[0] = -100
    assert altmin.explain(model, *CASES["convolutional"][1:]).rows[0].dead == 1 / 4


def test_frozen_weights_are_left_out_of_the_gradient() -> None:
    model = net()
    model[2].weight.requires_grad_(False)
    model[0].requires_grad_(False)
    first, second, _ = explained(model, share=0.0).rows
    assert (first.frozen, first.gradient, first.cosine) == (True, 0.0, None)
    assert not second.frozen
    (bias,) = torch.autograd.grad(nn.functional.cross_entropy(model(batch()[0]), batch()[1]), model[2].bias)
    assert second.gradient == pytest.approx(float(bias.norm()), rel=1e-4)


def test_what_keeps_a_module_from_its_closed_form_is_named() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Softmax(1), nn.Linear(8, 3))
    model[2].register_forward_hook(lambda *_: None)
    found = [(row.through_autograd, row.avoidable) for row in explained(model).rows]
    assert found[0] == ((), ())
    assert found[1] == (("Linear",), ("Linear (a hook or a forward of its own)",))
    assert found[2] == (("Softmax",), ())


def test_a_net_without_derivatives_is_held_against_the_straight_through_estimate() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), altmin.Sign(), nn.Linear(16, 3))
    x, y = batch()
    found = altmin.explain(model, x, y, codes="straight-through", share=1e-4)
    assert found.facts.estimated
    assert [row.cosine for row in found.rows] == pytest.approx([1, 1], abs=1e-4)


def test_facts_are_those_of_the_mini_batch() -> None:
    x, y = batch()
    facts = altmin.explain(noisy_net().eval(), 3 * x + 7, y, lr=0.1).facts
    assert facts.input_mean == pytest.approx(float((3 * x + 7).mean()), rel=1e-5)
    assert facts.input_std == pytest.approx(float(3 * x.std(correction=0)), rel=1e-5)
    assert (facts.samples, facts.classes, facts.idle, facts.smallest_group) == (24, 3, ("BatchNorm1d", "Dropout"), None)
    assert explained(noisy_net()).facts.smallest_group == 24
    assert altmin.explain(convolutional(), *CASES["convolutional"][1:]).facts.smallest_group == 24 * 6 * 6
    scaled = x * torch.tensor([1, 1, 1, 1, 500.0])
    ratio = scaled.double().std(0, correction=0)
    assert altmin.explain(net(), scaled, y).facts.widest == pytest.approx(float(ratio.max() / ratio.median()))
    regression = altmin.explain(net(), x, 9 * x[:, :3], loss=nn.MSELoss()).facts
    assert (regression.classes, regression.target_std) == (None, pytest.approx(float(9 * x[:, :3].std(correction=0))))


@pytest.mark.parametrize(
    "change, options, words",
    [
        (lambda x, y: (x, y), {"method": "adam"}, "explain is about codes, and 'adam' moves none in a step"),
        (lambda x, y: (x, y), {"method": "am-adm"}, "did you mean 'am-adam'?"),
        (lambda x, y: (x, y), {"shares": 0.1}, "did you mean 'share'?"),
        (lambda x, y: (x, y + 1), {}, "label 3 is out of range"),
        (lambda x, y: (x[:, :4], y), {}, "Linear expects 5 features"),
        (lambda x, y: (x * math.nan, y), {}, "the input holds NaN"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_sentence(change: object, options: dict, words: str) -> None:
    x, y = change(*batch())  # type: ignore[operator]
    with pytest.raises(ValueError) as caught:
        altmin.explain(net(), x, y, **options)
    assert words in str(caught.value)


def test_a_fixed_step_of_the_codes_has_no_share() -> None:
    assert (explained(net(), codes=0.25).facts.share, explained(net(), codes=0.25).facts.step) == (None, 0.25)
    assert (explained(net(), share=0.2).facts.share, explained(net(), share=0.2).facts.step) == (0.2, None)


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    model = net()
    model.kept = model[0].weight * 2  # no leaf of a graph
    with pytest.raises(ValueError, match="this model cannot be copied"):
        explained(model)


def test_what_is_no_tensor_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="step takes tensors"):
        altmin.explain(net(), [[1.0]], Tensor([0]))  # type: ignore[arg-type]
