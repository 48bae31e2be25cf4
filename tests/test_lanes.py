"""A step that asks nothing is the ordinary step: the same numbers, with equal layers together and weights in one place.

All of it runs on a CPU too; that a recording of it gives the same is in test_recorded.py, on a GPU.
"""

import copy
import itertools
import shutil

import pytest
import torch
from torch import nn

import altmin
from altmin.execution.lanes import AltMinLane, lane
from altmin.execution.stacked import StackedCodes
from altmin.execution.storage import Storage, equal_blocks
from altmin.fusing import fusing
from altmin.weights.local import LocalOptimizer

F64 = torch.float64


def mlp(*widths: int, activation=nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for m, n in itertools.pairwise((7, *widths)):
        layers += [nn.Linear(m, n, bias=bias), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 3)).double()


def unequal() -> nn.Sequential:
    """Two runs of equal blocks with something else between."""
    wide = [m for _ in range(3) for m in (nn.Linear(9, 9), nn.ReLU())]
    narrow = [m for _ in range(2) for m in (nn.Linear(5, 5), nn.ReLU())]
    first, between = nn.Linear(7, 9), nn.Linear(9, 5)
    return nn.Sequential(first, nn.ReLU(), *wide, between, nn.ReLU(), *narrow, nn.Linear(5, 3)).double()


NETS = {
    "one layer": lambda: mlp(6),
    "two layers": lambda: mlp(6, 6),
    "a run": lambda: mlp(8, 8, 8, 8, 8),
    "two runs": unequal,
    "no biases": lambda: mlp(8, 8, 8, 8, bias=False),
    "so deep that offsets are magnified": lambda: mlp(*[8] * 40),
    "tanh": lambda: mlp(6, 6, 6, activation=nn.Tanh),
    "rectified inputs": lambda: nn.Sequential(
        *(m for _ in range(4) for m in (nn.ReLU(), nn.Linear(7, 7))), nn.ReLU(), nn.Linear(7, 3)
    ).double(),
    "mixed": lambda: nn.Sequential(*mlp(8, 8, 8)[:-1], nn.Linear(8, 8), nn.Tanh(), *mlp(8, 8, 8)[2:]).double(),
}
RULES = {
    "adam": lambda: altmin.LocalAdam(0.01, weight_decay=0.1),
    "adam by block": None,
    "adam, not normalised": lambda: altmin.LocalAdam(0.01, normalise=False),
    "sgd": lambda: altmin.LocalSGD(0.1, momentum=0.9, weight_decay=0.01),
    "sgd, plain": lambda: altmin.LocalSGD(0.1),
}


def twins(model: nn.Module, rule, **options) -> tuple[altmin.AltMin, altmin.AltMin]:
    make = rule or (lambda: altmin.LocalAdam([0.002 * (l % 3 + 1) for l in range(len(altmin.split(model)))]))
    own = [copy.deepcopy(options) for _ in range(2)]
    return tuple(altmin.AltMin(copy.deepcopy(model), weights=make(), **each) for each in own)  # type: ignore[return-value]


def batches(count: int, features=(7,), seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.randn(12, *features, dtype=F64, generator=generator), torch.randint(3, (12,), generator=generator)


def same(a: altmin.AltMin, b: altmin.AltMin, within: float = 1e-9) -> None:
    for p, q in zip(a.model.parameters(), b.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=within, atol=within)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("net", NETS)
def test_a_lane_takes_the_ordinary_step(net, rule):
    torch.manual_seed(0)
    ordinary, other = twins(NETS[net](), RULES[rule], penalty=altmin.Penalty(0.5, increment=0.3, maximum=1.2))
    on = lane(other)
    for x, y in batches(5):
        expected = ordinary.step(x, y).loss
        torch.testing.assert_close(on.advance(x, y), expected, rtol=1e-9, atol=1e-12)
    on.after()
    assert on.taken() is None
    assert other.penalty.value == pytest.approx(ordinary.penalty.value, rel=1e-12)
    same(ordinary, other)


@pytest.mark.parametrize("name, shape", [("lenet5", (1, 28, 28)), ("elman-5", (9, 2))])
def test_convolutions_and_codes_in_time_too(name, shape):
    torch.manual_seed(0)
    ordinary, other = twins(altmin.models.create(name, shape, 3).double(), RULES["adam"])
    on = lane(other)
    for x, y in batches(3, shape):
        ordinary.step(x, y)
        on.advance(x, y)
    same(ordinary, other)


@pytest.mark.parametrize("codes", [0.3, altmin.GradientCodes(steps=2), altmin.GradientCodes(l1=0.01)], ids=str)
def test_other_code_steps_are_not_stacked_but_the_same(codes):
    torch.manual_seed(0)
    ordinary, other = twins(NETS["a run"](), RULES["adam"], codes=codes)
    on = lane(other)
    for x, y in batches(3):
        ordinary.step(x, y)
        on.advance(x, y)
    same(ordinary, other)


def test_regression_by_squared_error():
    torch.manual_seed(0)
    ordinary, other = twins(NETS["a run"](), RULES["adam"], loss=nn.MSELoss())
    on = lane(other)
    for x, _ in batches(4):
        ordinary.step(x, x[:, :3].sin())
        on.advance(x, x[:, :3].sin())
    same(ordinary, other)


@pytest.mark.parametrize("rule", ["adam", "sgd"])
def test_linear_layers_over_more_than_one_dimension(rule):
    torch.manual_seed(0)
    ordinary, other = twins(NETS["a run"](), RULES[rule], loss=nn.MSELoss())
    on = lane(other)
    for x, _ in batches(4, (5, 7)):
        ordinary.step(x, x[..., :3].sin())
        on.advance(x, x[..., :3].sin())
    assert on.taken() is None
    same(ordinary, other)


@pytest.mark.parametrize("rule", RULES)
def test_in_single_precision_too(rule):
    torch.manual_seed(0)
    ordinary, other = twins(NETS["a run"]().float(), RULES[rule])
    on = lane(other)
    for x, y in batches(3):
        ordinary.step(x.float(), y)
        on.advance(x.float(), y)
    assert on.taken() is None
    same(ordinary, other, within=1e-4)


@pytest.mark.parametrize("codes", [None, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_below_a_layer_whose_units_are_all_dead_nothing_happens(dtype, codes):
    """Nothing is asked of the blocks below, and nothing, however often it is magnified, stays nothing."""
    torch.manual_seed(0)
    model = mlp(*[8] * 60).to(dtype)
    with torch.no_grad():
        model[2 * 45].bias.fill_(-100.0)
    before = copy.deepcopy(model)
    ordinary, other = twins(model, lambda: altmin.LocalSGD(0.1), codes=codes)
    ensemble = altmin.Ensemble([twins(model, lambda: altmin.LocalSGD(0.1), codes=codes)[0]])
    on = lane(other)
    for x, y in batches(2):
        metrics = ordinary.step(x.to(dtype), y)
        on.advance(x.to(dtype), y)
        ensemble.step(x.to(dtype), y)
    assert on.taken() is None
    assert not ensemble.diverged
    assert metrics.residuals[:45] == metrics.movements[:45] == [0.0] * 45
    for trained in (ordinary.model, other.model, ensemble.member(0)):
        moved = [not torch.equal(p, q) for p, q in zip(trained.parameters(), before.parameters(), strict=True)]
        assert not any(moved[: 2 * 45])
        assert moved[-1]


def test_frozen_layers_stay_as_they_are():
    torch.manual_seed(0)
    model = NETS["a run"]()
    model[4].requires_grad_(False)  # in the middle of what would be a run
    before = model[4].weight.clone()
    ordinary, other = twins(model, RULES["adam"])
    on = lane(other)
    for x, y in batches(3):
        ordinary.step(x, y)
        on.advance(x, y)
    same(ordinary, other)
    assert torch.equal(other.model[4].weight, before)


@pytest.mark.parametrize("rule", RULES)
def test_if_all_is_frozen_a_step_changes_nothing_and_tells_the_loss(rule):
    torch.manual_seed(0)
    model = NETS["a run"]().requires_grad_(False)
    before = copy.deepcopy(model)
    ordinary, other = twins(model, RULES[rule])
    on = lane(other)
    assert all(group.flat.dtype == F64 for group in on.store.groups)  # type: ignore[attr-defined]
    for x, y in batches(2):
        loss = nn.functional.cross_entropy(before(x), y)
        torch.testing.assert_close(ordinary.step(x, y).loss, loss)
        torch.testing.assert_close(on.advance(x, y), loss)
    for p, q, r in zip(*(m.parameters() for m in (before, ordinary.model, other.model)), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(p, r)


def test_the_problems_of_stacked_blocks_are_those_of_one_after_the_other():
    torch.manual_seed(0)
    plain, stacked = twins(NETS["two runs"](), RULES["adam"])
    on = lane(stacked)
    assert isinstance(on, AltMinLane)
    assert isinstance(on.am.codes, StackedCodes)
    assert [(run.first, run.last) for run in on.store.runs] == [(1, 3), (5, 6)]
    x, y = next(batches(1))
    with torch.no_grad():
        ours, theirs = (am.attempt(x, y, 0.7, altmin.codes.linesearch.Doubts()).problems for am in (on.am, plain))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.core[0], b.core[0], rtol=1e-12, atol=1e-14)
        force = [p.plain().at.force / p.above.scale for p in (a, b)]
        torch.testing.assert_close(*force, rtol=1e-10, atol=1e-16)
        torch.testing.assert_close(
            a.plain().at.values / a.above.scale**2, b.plain().at.values / b.above.scale**2, rtol=1e-10, atol=1e-18
        )


def test_a_lane_goes_on_where_the_method_was_and_hands_back_to_it():
    """Two ordinary steps, two in the lane, two ordinary: six ordinary steps. Its optimizer's state is its own."""
    torch.manual_seed(0)
    for rule in ("adam", "sgd"):
        ordinary, other = twins(NETS["two runs"](), RULES[rule])
        data = list(batches(6))
        for x, y in data:
            ordinary.step(x, y)
        for x, y in data[:2]:
            other.step(x, y)
        on = lane(other)
        on.before()
        for x, y in data[2:4]:
            on.advance(x, y)
        on.after()
        for x, y in data[4:]:
            other.step(x, y)
        same(ordinary, other)
        ours, theirs = (am.state_dict()["weights"]["optimizer"]["state"] for am in (other, ordinary))
        for key, state in theirs.items():
            for name, value in state.items():
                torch.testing.assert_close(ours[key][name], value, rtol=1e-9, atol=1e-12)


def test_rates_that_a_schedule_sets_reach_the_device():
    torch.manual_seed(0)
    ordinary, other = twins(NETS["a run"](), RULES["adam"])
    on = lane(other)
    for i, (x, y) in enumerate(batches(4)):
        for am in (ordinary, other):
            for group in am.optimizer.param_groups:
                group["lr"] = 0.01 / (i + 1)
        ordinary.step(x, y)
        on.before()
        on.advance(x, y)
        on.after()
    same(ordinary, other)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_step_with_bad_numbers_and_all_after_it_change_nothing_until_forgiven(bad):
    torch.manual_seed(0)
    ordinary, other = twins(NETS["a run"](), RULES["adam"])
    on = lane(other)
    data = list(batches(5))
    for x, y in data[:2]:
        ordinary.step(x, y)
        on.advance(x, y)
    state = [t.clone() for t in (*on.store.groups[0:1][0][:1], on.mu, *on.states[0].tensors)]
    x, y = data[2]
    on.advance(x.clone().fill_(bad), y)
    on.advance(x, y)
    assert on.taken() == 2
    for old, new in zip(state, (on.store.groups[0].flat, on.mu, *on.states[0].tensors), strict=True):
        assert torch.equal(old, new)
    on.forgive()
    for x, y in data[2:]:
        ordinary.step(x, y)
        on.advance(x, y)
    assert on.taken() is None
    same(ordinary, other)


def test_a_step_that_should_be_halved_is_not_taken(monkeypatch):
    torch.manual_seed(0)
    _, other = twins(NETS["a run"](), RULES["adam"])
    on = lane(other)
    before = on.store.groups[0].flat.clone()
    monkeypatch.setattr("altmin.codes.linesearch._rose", lambda values, *rest: torch.arange(len(values)) == 3)
    on.advance(*next(batches(1)))
    assert on.taken() == 0
    assert torch.equal(on.store.groups[0].flat, before)


def test_the_modules_parameters_are_views_into_one_tensor_that_follow_it():
    model = NETS["two runs"]()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    am = altmin.AltMin(model)
    assert isinstance(am.weights, LocalOptimizer)
    store = Storage(am.chain, am.optimizer)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), "moving parameters changes none"
    x = torch.randn(4, 7, dtype=F64)
    with torch.no_grad():
        for group in store.groups:
            group.flat.mul_(2)
        doubled = nn.Sequential(*(copy.deepcopy(m) for m in model))
        doubled.load_state_dict({name: 2 * value for name, value in state.items()})
        torch.testing.assert_close(model(x), doubled(x))
    run = store.runs[0]
    for i, l in enumerate(range(run.first, run.last + 1)):
        W, b = am.theta[l]
        assert run.W[i].data_ptr() == W.data_ptr()
        assert run.db is not None
        assert run.db[i].data_ptr() == store.grads[b].data_ptr()
        assert torch.equal(run.W[i], W)


def test_equal_blocks_are_rows_of_rectified_linear_layers_of_one_shape():
    assert equal_blocks(altmin.split(mlp(8, 8, 8, 5))) == [(1, 2)]
    assert equal_blocks(altmin.split(unequal())) == [(1, 3), (5, 6)]
    assert equal_blocks(altmin.split(mlp(8, 8, 8, activation=nn.Tanh))) == []
    assert equal_blocks(altmin.split(mlp(8, 8))) == []
    rectified_first = nn.Sequential(
        nn.ReLU(), nn.Linear(7, 7), *(m for _ in range(3) for m in (nn.ReLU(), nn.Linear(7, 7)))
    )
    assert equal_blocks(altmin.split(rectified_first)) == [(1, 2)], "below the first block there is no code"


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda m: altmin.AltMin(m, weights=altmin.CoActivationMemory()), "CoActivationMemory cannot be recorded"),
        (lambda m: altmin.AltMin(m, weights=altmin.LocalAdam(steps=3)), "3 steps"),
        (lambda m: altmin.AltMin(m, weights=altmin.LocalAdam(l1=0.1)), "l1=0.1"),
        (lambda m: altmin.AltMin(m, codes=altmin.GradientCodes(steps=5, tolerance=0.1)), "tolerance"),
        (lambda m: altmin.AltMin(m, loss=lambda o, y: o.square().mean()), "a loss of one's own"),
        (lambda m: altmin.AltMin(nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))), "batch norm"),
        (lambda m: altmin.AltMin(altmin.models.binary_mlp(7, (5, 5), 3)), "DiscreteCodes asks"),
        (lambda m: altmin.methods.create("am-adam-offline", m), "Offline cannot be recorded"),
    ],
)
def test_what_cannot_be_recorded_says_why(make, words):
    with pytest.raises(ValueError, match=words):
        lane(make(mlp(5, 5)))


def test_recording_wants_a_gpu():
    method = altmin.methods.create("am-adam", mlp(5, 5))
    with pytest.raises(ValueError, match=r"on a CUDA device, the model is on cpu; move it with \.to\('cuda'\)"):
        altmin.execution.Recorded(method, torch.zeros(4, 7), torch.zeros(4, dtype=torch.int64))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_compiled_chains_of_operations_give_the_same_numbers_for_one_and_for_many():
    torch.manual_seed(0)
    ordinary, other = twins(mlp(6, 6), RULES["adam"])
    on, crews = lane(other), [altmin.Ensemble(twins(mlp(5), RULES["sgd"])) for _ in range(2)]
    crews[1].model.load_state_dict(crews[0].model.state_dict())
    for x, y in batches(2):
        ordinary.step(x, y)
        crews[0].advance(x, y)
        with fusing():
            on.advance(x, y)
            crews[1].advance(x, y)
    same(ordinary, other)
    for p, q in zip(crews[0].model.parameters(), crews[1].model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_options_that_are_recorded_may_not_change_and_counts_must_agree():
    torch.manual_seed(0)
    _, other = twins(mlp(5, 5), RULES["adam"])
    on = lane(other)
    other.optimizer.param_groups[0]["weight_decay"] = 0.3
    with pytest.raises(ValueError, match="options of the optimizer other than lr are recorded"):
        on.before()
    _, late = twins(mlp(5, 5), RULES["adam"])
    first = late.theta[0][0].requires_grad_(False)
    late.step(*next(batches(1)))
    first.requires_grad_(True)
    late.step(*next(batches(1)))
    with pytest.raises(ValueError, match="different numbers of steps"):
        lane(late)
