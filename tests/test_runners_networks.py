"""Nets that branch run in every way a chain does, with the same numbers: as members of an ensemble, as steps that read
nothing back, compiled. With batch norm and other buffers, tokens, and cuts inside branches."""

import copy

import pytest
import torch
from ensembles import agree
from mode_cases import CUT, EVERY, NETS, Net, tokens
from torch import Tensor, nn

import altmin
from altmin import Ensemble, methods
from altmin.calculus.context import LOCAL
from altmin.runners.capture import captured, check_capturable
from altmin.training import fit, fit_ensemble

torch.set_num_threads(1)
RATES = (2**-7, 2**-9)
CUT_FOR_MEMBERS = ("Basic, 4 dimensions", "Attention, 3 dimensions", "Dense, 2 dimensions", "reversible")


def build(net: Net, seed: int = 0, lr: float = RATES[0], name: str = "am-adam"):
    torch.manual_seed(seed)
    return methods.create(name, net.make().double(), lr=lr, **net.options())


def members(net: Net, name: str = "am-adam") -> list:
    return [build(net, seed, lr, name) for seed, lr in enumerate(RATES)]


def same(a: nn.Module, b: nn.Module, within: float = 1e-8) -> None:
    for name, value in a.state_dict().items():
        torch.testing.assert_close(b.state_dict()[name], value, rtol=within, atol=within, msg=name)


# -- ensembles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NETS, *(f"{name}, cut inside" for name in CUT_FOR_MEMBERS)])
def test_a_member_takes_the_steps_that_it_would_take_alone(name):
    net = EVERY[name]
    alone, together = members(net), Ensemble(members(net))
    for x, y in net.batches(3):
        expected = [method.step(x, y).loss for method in alone]
        torch.testing.assert_close(together.step(x, y).loss, torch.stack(expected), rtol=1e-8, atol=1e-10)
    agree(alone, together, 1e-7)  # a bias before batch norm has no gradient but rounding, which Adam scales up
    assert together.diverged == {}


class Centred(nn.Module):
    """Subtracts a mean of its inputs that it keeps in a buffer, where each forward adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.layer(x - self.mean)


@pytest.mark.parametrize("steps", [1, 2])
def test_gradients_of_a_module_are_taken_with_the_buffers_of_its_forward(steps):
    """Not with those that the same step has changed already, nor with another member's."""

    def made() -> list:
        torch.manual_seed(0)
        nets = [nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Centred(), nn.Linear(6, 3)).double() for _ in range(2)]
        return [altmin.AltMin(net, weights=altmin.LocalSGD(2**-2, steps=steps)) for net in nets]

    alone, together = made(), Ensemble(made())
    for seed in range(3):
        x = 3 + torch.randn(7, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        y = torch.arange(7) % 3
        [method.step(x, y) for method in alone]
        together.step(x, y)
    agree(alone, together)


@pytest.mark.parametrize("name", ["am-sgd", "am-mem"])
def test_other_weight_rules(name):
    for net in (NETS["gpt"], CUT["residual, cut inside"]):
        alone, together = members(net, name), Ensemble(members(net, name))
        for x, y in net.batches(2):
            [method.step(x, y) for method in alone]
            together.step(x, y)
        agree(alone, together)


@pytest.mark.parametrize("name", ["gpt", "residual, cut inside"])
def test_each_member_may_have_data_of_its_own_and_go_on_alone(name):
    net = EVERY[name]
    alone, together = members(net), Ensemble(members(net))
    for first, second in zip(net.batches(2), net.batches(2, seed=6), strict=True):
        x, y = (torch.stack(pair) for pair in zip(first, second, strict=True))
        together.step(x, y, each=True)
        alone[0].step(*first)
        alone[1].step(*second)
    agree(alone, together, 1e-7)
    others = together.methods
    for x, y in net.batches(2, seed=7):
        for method, other in zip(alone, others, strict=True):
            torch.testing.assert_close(other.step(x, y).loss, method.step(x, y).loss, rtol=1e-7, atol=1e-9)
    agree(alone, together, 1e-6)


class Decides(nn.Module):
    """Cannot be traced, so its batch norm goes through autograd with it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(5, 5), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.norm(self.layer(x)))
        return x + y if self.training else x + y.clamp(-1, 1)


def test_batch_norm_in_a_module_that_goes_through_autograd_keeps_each_members_statistics():
    net = NETS["residual mlp"]._replace(make=lambda: nn.Sequential(nn.Linear(5, 5), Decides(), nn.Linear(5, 3)))
    assert build(net).chain.blocks[1].uses_autograd
    alone, together = members(net), Ensemble(members(net))
    captured_one = captured(other := build(net), False, LOCAL)
    for x, y in net.batches(3):
        [method.step(x, y) for method in alone]
        together.step(x, y)
        captured_one.run(x, y)
    agree(alone, together, 1e-7)
    same(alone[0].model, other.model, 1e-7)
    means = [together.member(i).state_dict()["1.norm.running_mean"] for i in range(2)]
    assert not torch.allclose(*means)


def test_tokens_are_told_from_a_mini_batch_for_each_member():
    together = Ensemble(members(NETS["gpt"]))
    x, y = tokens()
    assert together.step(x, y).loss.shape == (2,)
    with pytest.raises(ValueError, match=r"can be one mini-batch for all 2 members or one for each; say which"):
        together.step(x[:2], y[:2])
    pairs = x[:2, None].expand(2, 3, 6), y[:2, None].expand(2, 3, 6)
    with pytest.raises(ValueError, match="say which with each=False or each=True"):
        together.step(*pairs)
    alone = members(NETS["gpt"])
    for i, method in enumerate(alone):
        method.step(x, y)
        method.step(pairs[0][i], pairs[1][i])
    together.step(*pairs, each=True)
    agree(alone, together)


@pytest.mark.parametrize("name", ["residual mlp", "gpt"])
def test_training_ensemble_gives_the_rows_of_fit(name):
    net = NETS[name]
    x, y = (torch.cat(parts) for parts in zip(*net.batches(3), strict=True))
    test = (x, y) if name != "gpt" else {"validation": (x, y)}
    given = {"epochs": 2, "batch_size": 6}
    histories = fit_ensemble(Ensemble(members(net)), (x, y), test, seeds=(3, 4), **given)
    for method, seed, history in zip(members(net), (3, 4), histories, strict=True):
        expected = fit(method, (x, y), test, seed=seed, **given)
        for ours, theirs in zip(history.epochs, expected.epochs, strict=True):
            assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-6)
            assert {k: v for k, v in ours.items() if "accuracy" in k} == {
                k: v for k, v in theirs.items() if "accuracy" in k
            }


# -- steps that read nothing back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codes", [None, altmin.GradientCodes(order="weights-first")])
@pytest.mark.parametrize(
    "name", ["Basic, 4 dimensions", "gpt", "Split, 2 dimensions", "Attention, 3 dimensions, cut inside"]
)
def test_a_captured_step_is_the_ordinary_step_however_codes_move(name, codes):
    net = EVERY[name]
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        options = net.options() | {"codes": copy.deepcopy(codes)}
        made.append(altmin.AltMin(net.make().double(), weights=altmin.LocalAdam(2**-7), **options))
    step = captured(made[1], False, LOCAL)
    for x, y in net.batches(3):
        expected = made[0].step(x, y)
        found = step.metrics(step.run(x, y))
        torch.testing.assert_close(found.loss, expected.loss, rtol=1e-8, atol=1e-10)
        assert found.objective == pytest.approx(expected.objective, rel=1e-8)
    assert step.pull() is None
    same(made[0].model, made[1].model, 1e-7)


@pytest.mark.parametrize("name", [*CUT, "residual mlp"])
def test_a_captured_step_is_the_ordinary_step_with_eval_in_between(name):
    net = EVERY[name]
    ordinary, other = build(net), build(net)
    check_capturable(other)
    step = captured(other, False, LOCAL)
    for x, y in net.batches(3):
        expected = ordinary.step(x, y).loss
        torch.testing.assert_close(step.metrics(step.run(x, y)).loss, expected, rtol=1e-8, atol=1e-10)
        outputs = [each.model.eval()(x) for each in (ordinary, other)]
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-7)
        [each.model.train() for each in (ordinary, other)]
    assert step.pull() is None
    same(ordinary.model, other.model, 1e-7)


@pytest.mark.parametrize("name", ["resnet18", "residual, cut inside"])
def test_a_step_that_is_not_taken_leaves_statistics_inside_branches_as_they_are(name):
    net = EVERY[name]
    step = captured(method := build(net), False, LOCAL)
    x, y = net.batches(1)[0]
    before = copy.deepcopy(method.model.state_dict())
    step.run(x / 0, y)
    assert step.pull() == 0
    assert all(torch.equal(before[key], value) for key, value in method.model.state_dict().items())


def dropping(p: float = 0.5) -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drop = nn.Linear(5, 5), nn.Dropout(p)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.drop(torch.tanh(self.layer(x)))

    return nn.Sequential(nn.Linear(5, 5), Block(), nn.Linear(5, 3))


def test_dropout_inside_a_branch_draws_anew_in_every_captured_step_and_once_in_it():
    net = NETS["residual mlp"]._replace(make=dropping)
    ordinary, other = build(net), build(net)
    step = captured(other, False, LOCAL)
    for seed, (x, y) in enumerate(net.batches(3)):
        losses = []
        for run in (lambda: ordinary.step(x, y).loss, lambda: step.metrics(step.run(x, y)).loss):  # noqa: B023
            torch.manual_seed(seed)
            losses.append(run())
        torch.testing.assert_close(*losses, rtol=1e-9, atol=1e-10)
    same(ordinary.model, other.model)
    frozen = captured(altmin.AltMin(copy.deepcopy(other.model).requires_grad_(False)), False, LOCAL)
    assert len({float(frozen.run(x, y)[0]) for _ in range(4)}) == 4, "of 30 units no two masks are the same"


# -- compiled ---------------------------------------------------------------------------------------------------------

WHOLE = [pytest.param("gpt", marks=pytest.mark.slow), "Basic, 4 dimensions, cut inside"]


@pytest.mark.parametrize("name", WHOLE)
def test_torch_can_trace_a_step_as_a_whole_also_where_blocks_hand_several_values_on(name, traced):
    net = EVERY[name]
    ordinary, other = build(net), build(net)
    step = captured(other, True, LOCAL)
    for x, y in net.batches(3):
        ordinary.step(x, y)
        step.run(x, y)
    assert step.compiled.works
    same(ordinary.model, other.model, 1e-7)
