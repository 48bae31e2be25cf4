"""`AltMin` as a whole: what a step reports, that the model stays the user's, and what is refused without a trace."""

import math
import pickle

import pytest
import torch
from conftest import update_codes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.functional import jvp
from torch.nn import functional as F
from trainer_cases import EVERY_RULE, F64, RULES, batch, clone, convolutional, equal, mlp

import altmin

# -- what a step reports ----------------------------------------------------------------------------------------------


def custom(output: Tensor, y: Tensor) -> Tensor:
    return F.softplus(-output.gather(1, y.unsqueeze(1))).mean()


LOSSES = [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1), custom]
CODES = [altmin.GradientCodes(), altmin.GradientCodes(order="weights-first")]
MODELS = {"relu": mlp, "tanh": lambda: mlp(nn.Tanh), "convolutional": convolutional}


@given(
    name=st.sampled_from(list(MODELS)),
    loss=st.sampled_from(LOSSES),
    exponent=st.floats(-3, 3),
    codes=st.sampled_from(CODES),
    seed=st.integers(0, 1000),
)
def test_the_metrics_are_f_and_its_parts_at_the_moved_codes_with_linear_blocks(name, loss, exponent, codes, seed):
    model, (x, y), mu = MODELS[name](), batch(seed), 10.0**exponent
    (*encoded, _), moved, _ = update_codes(model, codes, x, y, mu, loss)
    offsets, left = [m - c for m, c in zip(moved, encoded, strict=True)], []
    *blocks, last = [nn.Sequential(*(m.module for m in block.maps)) for block in altmin.split(clone(model))]
    for block, c, below, own in zip(blocks, [x, *encoded], [0 * x, *offsets], offsets, strict=False):
        left.append(own - jvp(block, c, below)[1])
    with torch.no_grad():
        f = loss(last(moved[-1]), y) + mu / len(x) * sum(t.square().sum() for t in left)
        before = loss(clone(model)(x), y)
    metrics = altmin.AltMin(model, loss, codes, penalty=altmin.Penalty(mu, maximum=None)).step(x, y)
    torch.testing.assert_close(metrics.loss, before)
    torch.testing.assert_close(float(metrics.objective), float(f))
    assert metrics.penalty == mu
    for found, wanted in ((metrics.residuals, left), (metrics.movements, offsets)):
        assert list(found) == pytest.approx([float(t.square().mean().sqrt()) for t in wanted], rel=1e-6, abs=1e-12)
    assert metrics.objective <= metrics.loss * (1 + 1e-12)


def test_codes_that_move_lower_the_objective():
    x, y = batch()
    metrics = altmin.AltMin(mlp(), penalty=altmin.Penalty(0.1)).step(x, y)
    assert metrics.objective < 0.99 * metrics.loss


# -- the model stays the user's ---------------------------------------------------------------------------------------


@EVERY_RULE
def test_the_model_stays_an_ordinary_module(rule):
    model, (x, y) = convolutional(), batch()
    keys, identities = list(model.state_dict()), [id(p) for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()]
    before = clone(model.state_dict())
    am = altmin.AltMin(model, weights=RULES[rule]())
    for _ in range(2):
        am.step(x, y)
    assert list(model.state_dict()) == keys
    assert [id(p) for p in model.parameters()] == identities
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad_fn is None and p.is_leaf for p in model.parameters())
    for key, value in model.state_dict().items():
        assert value.dtype == before[key].dtype
        if key != "1.bias":  # before a batch norm a bias has no gradient
            assert not torch.equal(value, before[key]), f"{key} has not learned"
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    assert all(p.grad is not None for p in model.parameters()), "backprop still works on it"


@EVERY_RULE
@pytest.mark.parametrize("make", [mlp, convolutional], ids=["mlp", "convolutional"])
def test_a_trainer_that_was_pickled_goes_on_as_the_original(make, rule):
    am = altmin.AltMin(make(), weights=RULES[rule](), penalty=altmin.Penalty(growth=2.0))
    am.step(*batch(0))
    am.end_epoch()
    am.gather(*batch(1))
    other = pickle.loads(pickle.dumps(am))
    assert equal(other.state_dict(), am.state_dict())
    for each in (am, other):
        each.gather(*batch(2))
        each.apply()
        each.step(*batch(3))
    assert equal(other.model.state_dict(), am.model.state_dict())
    assert equal(other.state_dict(), am.state_dict())
    assert other.chain.model is other.model
    assert other.updates.theta[0][0] is next(other.model.parameters())
    assert repr(other) == repr(am)
    rule = RULES[rule]()
    assert repr(pickle.loads(pickle.dumps(rule))) == repr(rule)


def test_repr_names_model_blocks_and_parts():
    am = altmin.AltMin(mlp(), loss=nn.MSELoss(), codes="printed", weights=altmin.LocalSGD(0.5), penalty=3.0)
    first, *parts = [line.strip() for line in repr(am).splitlines()[1:-1]]
    assert first == f"Sequential in {len(am.chain)} blocks,"
    assert parts == [f"{name}={getattr(am, name)!r}," for name in ("loss", "codes", "weights", "penalty")]


def test_a_step_works_under_no_grad_and_leaves_no_graph():
    model, (x, y) = mlp(), batch()
    with torch.no_grad():
        metrics = altmin.AltMin(model).step(x, y)
    assert not metrics.loss.requires_grad
    metrics = altmin.AltMin(model).step(x, y)
    assert not metrics.loss.requires_grad
    assert not torch.as_tensor(metrics.objective).requires_grad


@pytest.mark.parametrize("momentum", [0.1, 0.3, None])
def test_running_statistics_after_steps_are_those_pytorch_keeps(momentum):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=momentum), nn.ReLU(), nn.Linear(5, 3)).double()
    twin = clone(model)
    am = altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.1))
    for i in range(3):
        x, y = batch(i)
        with torch.no_grad():
            for p, q in zip(twin.parameters(), model.parameters(), strict=True):
                p.copy_(q)
            twin(x)
        am.step(x, y)
        assert float((model[1].running_mean - 0).norm()) > 0
        for key in ("running_mean", "running_var", "num_batches_tracked"):
            torch.testing.assert_close(getattr(model[1], key), getattr(twin[1], key))


OPTIONS = {
    "label_smoothing": (nn.CrossEntropyLoss, 0.3),
    "ignore_index": (nn.CrossEntropyLoss, 1),
    "weight": (nn.CrossEntropyLoss, torch.tensor([1.0, 2.0, 4.0], dtype=F64)),
    "weight for another": (
        lambda: nn.CrossEntropyLoss(torch.ones(3, dtype=F64)),
        torch.tensor([1.0, 2.0, 4.0]).double(),
    ),
    "reduction": (nn.CrossEntropyLoss, "sum"),
    "reduction of squares": (nn.MSELoss, "sum"),
}


@pytest.mark.parametrize("name, compile", [*((name, False) for name in OPTIONS), ("label_smoothing", True)])
def test_options_of_the_loss_act_from_the_next_step_on(name, compile):
    make, value = OPTIONS[name]
    loss, (x, y) = make(), batch()
    y = torch.randn(10, 3, dtype=F64) if isinstance(loss, nn.MSELoss) else y
    am = altmin.AltMin(mlp(), loss, weights=altmin.LocalSGD(0.01, momentum=0.0), penalty=2.0, compile=compile)
    am.step(x, y)
    setattr(loss, name.split()[0], value)
    twin = altmin.AltMin(clone(am.model), loss, weights=altmin.LocalSGD(0.01, momentum=0.0), penalty=2.0)
    expected = loss(am.model(x), y).detach()
    for each in (am, twin):
        torch.testing.assert_close(each.step(x, y).loss, expected)
    torch.testing.assert_close(am.model.state_dict(), twin.model.state_dict())


@pytest.mark.parametrize("name", ["sgd", "gauss-newton", "dtp", "proxprop", "predictive-coding"])
def test_options_of_the_loss_act_in_other_methods_too(name):
    loss, changed, (x, y) = nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.3), batch()
    method, twin = (altmin.methods.create(name, mlp(nn.Tanh), loss=each) for each in (loss, changed))
    loss.label_smoothing = 0.3
    for each in (method, twin):
        torch.manual_seed(0)
        each.step(x, y)
    assert equal(method.model.state_dict(), twin.model.state_dict())


# -- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@EVERY_RULE
def test_a_step_on_cuda_is_one_on_the_cpu(rule):
    for make in (mlp, convolutional):
        here, there = make(), make().cuda()
        a = altmin.AltMin(here, weights=RULES[rule]())
        b = altmin.AltMin(there, weights=RULES[rule]())
        for i in range(3):
            x, y = batch(i)
            first, second = a.step(x, y), b.step(x.cuda(), y.cuda())
            torch.testing.assert_close(first.loss, second.loss.cpu(), rtol=1e-8, atol=1e-8)
        for p, q in zip(here.parameters(), there.parameters(), strict=True):
            torch.testing.assert_close(p, q.cpu(), rtol=1e-6, atol=1e-7)


@pytest.mark.cuda
@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range_is_found_on_cuda_and_changes_nothing(label):
    model, (x, y) = mlp().cuda(), batch()
    before = [p.clone() for p in model.parameters()]
    y[1] = label
    with pytest.raises(ValueError, match=f"label {label} is out of range: the model has 3 outputs"):
        altmin.AltMin(model).step(x.cuda(), y.cuda())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.cuda
def test_an_input_on_another_device_than_the_model_is_refused():
    x, y = batch()
    with pytest.raises(ValueError, match="cuda"):
        altmin.AltMin(mlp()).step(x.cuda(), y.cuda())


# -- nothing silently wrong -------------------------------------------------------------------------------------------


@EVERY_RULE
def test_two_trainers_may_share_their_parts_and_each_has_a_state_of_its_own(rule):
    shared, alone = ({"weights": RULES[rule](), "penalty": altmin.Penalty(1.0, increment=0.5)} for _ in range(2))
    first, second, wanted = mlp(), mlp(), mlp()
    one, other, reference = (
        altmin.AltMin(first, **shared),
        altmin.AltMin(second, **shared),
        altmin.AltMin(wanted, **alone),
    )
    for i in range(3):
        one.step(*batch(9))
        assert other.step(*batch(i)).penalty == reference.step(*batch(i)).penalty
    assert equal(second.state_dict(), wanted.state_dict())


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_input_that_is_not_finite_is_refused_where_an_activation_would_hide_it(value):
    torch.manual_seed(0)
    nets = [
        nn.Sequential(nn.Tanh(), nn.Linear(4, 3)).double(),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double(),
        altmin.models.create("elman-5", (4, 1), 3).double(),
    ]
    for net in nets:
        before = clone(net.state_dict())
        x = torch.randn(6, 4, dtype=F64).unsqueeze(-1) if net is nets[2] else torch.randn(6, 4, dtype=F64)
        x[3, 1] = value
        with pytest.raises(ValueError, match="the input holds NaN or infinite values"):
            altmin.AltMin(net).step(x, torch.randint(3, (6,)))
        assert equal(before, net.state_dict())


def test_targets_that_are_not_finite_are_named():
    net = nn.Sequential(nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 4, dtype=F64), torch.full((6, 2), math.nan, dtype=F64)
    with pytest.raises(ValueError, match="the targets hold NaN or infinite values"):
        altmin.AltMin(net, loss=nn.MSELoss()).step(x, y)


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "adam"},
        {"weights": altmin.LocalAdam},
        {"weights": torch.optim.Adagrad([torch.zeros(1)])},
        {"loss": "mse"},
        {"loss": nn.MSELoss},
        {"penalty": True},
        {"penalty": torch.tensor(1.0)},
        {"codes": {}},
        {"codes": nn.Tanh()},
    ],
    ids=range(9),
)
def test_what_is_no_part_of_a_trainer_is_refused(options):
    with pytest.raises(TypeError):
        altmin.AltMin(mlp(), **options)


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(nn.Linear(2, 2)).half(),
        lambda: nn.Sequential(nn.Linear(2, 2)).to(torch.complex64),
        lambda: nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 2)),
    ],
)
def test_models_of_other_numbers_are_refused(model):
    with pytest.raises((TypeError, ValueError)):
        altmin.AltMin(model())


@pytest.mark.parametrize("mode", [lambda: torch.autocast("cpu", torch.float16), torch.inference_mode])
def test_a_step_in_a_mode_without_precise_gradients_is_refused(mode):
    trainer = altmin.AltMin(mlp())
    with mode(), pytest.raises(ValueError):
        trainer.step(*batch(0))
