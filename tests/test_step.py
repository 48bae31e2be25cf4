"""One mini-batch as functions: what the moved codes cost, when a step is refused, and that it changes nothing."""

import pytest
import torch
from codes_cases import NETS, batch, mlp, net
from conftest import update_codes
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import altmin
from altmin import GradientCodes
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.numbers import Tensors
from altmin.core.losses import adapt
from altmin.core.step import Moved, move_codes, soft_threshold


def moved_by(model, x, y, mu=0.5, codes=None, loss=None, context=LOCAL) -> Moved:
    chain = altmin.split(model)
    loss = adapt(loss or nn.CrossEntropyLoss())
    with torch.no_grad():
        return move_codes(chain, chain.parameters(), codes or GradientCodes(), loss, x, y, x.new_tensor(mu), context)


@pytest.mark.parametrize("name", NETS)
def test_moving_the_codes_changes_neither_the_model_nor_the_batch(name):
    model, (x, y) = net(name), batch()
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    first_x, first_y = x.clone(), y.clone()
    moved_by(model, x, y)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, first_x)
    assert torch.equal(y, first_y)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum")], ids=["mean", "sum"])
def test_the_objective_weighs_loss_and_distances_alike_for_every_reduction_of_the_loss(loss):
    model, (x, y) = mlp(nn.Tanh), batch()
    mu = 0.7
    encoded, c, _ = update_codes(model, GradientCodes(share=1.0), x, y, mu, loss)
    step = moved_by(model, x, y, mu, GradientCodes(share=1.0), loss)
    hidden = [layer for layer in model if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        misfit = (c[0] - hidden[0](x)).square().sum() + (c[1] - hidden[1](c[0].tanh())).square().sum()
        value = loss(hidden[2](c[1].tanh()), y)
    per = 1 if loss.reduction == "sum" else len(x)
    assert float(step.objective) == pytest.approx(float(value + mu * misfit / per), rel=1e-6)
    assert float(step.loss) == pytest.approx(float(loss(encoded[-1], y)))


@pytest.mark.parametrize("context", [LOCAL, Context(numbers=Tensors)], ids=["read", "not read"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_an_input_that_is_not_finite_is_refused(context, bad):
    x, y = batch()
    assert bool(moved_by(mlp(nn.ReLU), x, y, context=context).is_finite)
    x[2, 1] = bad
    assert not bool(moved_by(mlp(nn.ReLU), x, y, context=context).is_finite)


@pytest.mark.parametrize("where", ["loss", "objective", "checked"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_number_that_is_not_finite_is_enough_to_refuse_a_step(where, bad):
    numbers = torch.tensor([0.5, 0.9]), torch.tensor([0.5, 0.0]), torch.tensor(0.1), torch.tensor(2.0)
    good = Moved(torch.tensor(1.0), [], *numbers, [])
    assert bool(good.is_finite)
    assert not bool(good._replace(**{where: torch.tensor(bad)}).is_finite)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_loss_that_overflows_is_refused_even_where_the_codes_would_bring_it_back(share):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 30), nn.Linear(30, 3)), torch.rand(100, 4)
    nn.init.constant_(model[1].weight, 0.1)
    far = torch.full((100, 3), 1e19)  # in float32 its square is finite, the sum of 300 of them is not
    step = moved_by(model, x, far, mu=1e-9, codes=GradientCodes(share=share), loss=nn.MSELoss())
    assert step.loss.isinf()
    assert not bool(step.is_finite)


@given(p=st.floats(-5, 5), threshold=st.floats(0, 3))
def test_soft_threshold_minimises_half_the_squared_distance_plus_the_l1_term(p, threshold):
    z = soft_threshold(torch.tensor(p, dtype=torch.float64), threshold).item()
    # the subdifferential of |z - p|^2 / 2 + threshold |z| at its minimum holds 0
    if z:
        assert z - p + threshold * (1 if z > 0 else -1) == pytest.approx(0, abs=1e-12)
    else:
        assert abs(p) <= threshold + 1e-12


def test_soft_threshold_takes_a_tensor_of_thresholds():
    p, threshold = torch.tensor([[-3.0, 0.5], [2.0, -2.0]]), torch.tensor([[1.0], [2.0]])
    assert soft_threshold(p, threshold).tolist() == [[-2.0, 0.0], [0.0, 0.0]]


class Factors(TorchDispatchMode):
    """The dimensions of the first factor of every x + a b."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.addcmul.default:
            self.found.append(args[1].ndim)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_step_lengths_are_the_last_factor_as_torch_demands_on_a_gpu(activation):
    """There they are in main memory, and a product of three takes such a number in one place only."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 5), activation(), nn.Linear(5, 5), nn.BatchNorm1d(5), activation(), nn.Linear(5, 3)
    )
    am, y = altmin.AltMin(model), torch.randint(3, (6,))
    am.step(torch.randn(6, 4), y)
    with Factors() as seen:
        am.step(torch.randn(6, 4), y)
    assert seen.found
    assert 0 not in seen.found
