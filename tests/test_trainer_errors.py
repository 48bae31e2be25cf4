"""Bad input to `AltMin`: refused in one clear sentence, and nothing of the run has changed."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn
from trainer_cases import F64, RULES, batch, clone, convolutional, equal, mlp

import altmin


def nan_input() -> tuple[Tensor, Tensor]:
    x, y = batch()
    x[3, 2] = float("nan")
    return x, y


def infinite_input() -> tuple[Tensor, Tensor]:
    x, y = batch()
    x[0, 0] = float("inf")
    return x, y


def labels(change) -> tuple[Tensor, Tensor]:
    x, y = batch()
    return x, change(y)


BAD = {
    "too many features": lambda: (torch.randn(5, 7, dtype=F64), torch.zeros(5, dtype=torch.int64)),
    "integer input": lambda: labels(lambda y: y)[::-1],
    "label too high": lambda: labels(lambda y: y + 3),
    "label below zero": lambda: labels(lambda y: y - 1),
    "label dtype": lambda: labels(lambda y: y.int()),
    "labels as floats": lambda: labels(lambda y: y.double()),
    "labels as a column": lambda: labels(lambda y: y.unsqueeze(1)),
    "NaN": nan_input,
    "infinity": infinite_input,
    "empty": lambda: (torch.zeros(0, 4, dtype=F64), torch.zeros(0, dtype=torch.int64)),
    "lengths": lambda: labels(lambda y: y[:7]),
    "one number as target": lambda: labels(lambda y: y[0]),
    "lists": lambda: ([[0.0] * 4], [1]),
}


def unchanged_by(am: altmin.AltMin, x, y, error=(ValueError, TypeError, RuntimeError)) -> None:
    before = clone((am.model.state_dict(), am.state_dict(), am.penalty.value))
    with pytest.raises(error):
        am.step(x, y)
    assert equal((am.model.state_dict(), am.state_dict(), am.penalty.value), before)


@pytest.mark.parametrize(
    "case, rule", [*((case, "adam") for case in BAD), *(("NaN", rule) for rule in RULES), ("label too high", "memory")]
)
def test_bad_input_is_refused_and_changes_nothing(case, rule):
    for model in (mlp(), convolutional()):
        am = altmin.AltMin(model, weights=RULES[rule]())
        am.step(*batch())
        unchanged_by(am, *BAD[case]())


def test_one_sample_is_too_few_for_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    am = altmin.AltMin(model)
    am.step(*batch())
    unchanged_by(am, *batch(n=1), ValueError)


def test_a_batch_without_samples_is_refused_for_any_loss():
    am = altmin.AltMin(mlp(), loss=nn.MSELoss())
    unchanged_by(am, torch.zeros(0, 4, dtype=F64), torch.zeros(0, 3, dtype=F64), ValueError)


def test_a_loss_must_be_a_scalar():
    unchanged_by(altmin.AltMin(mlp(), nn.CrossEntropyLoss(reduction="none")), *batch())


def test_weights_that_have_left_the_finite_numbers_are_reported_with_their_block():
    model = mlp()
    am = altmin.AltMin(model)
    with torch.no_grad():
        model[2].weight[0, 0] = float("nan")
    with pytest.raises(altmin.Diverged, match="block 1"):
        am.step(*batch())


@pytest.mark.parametrize("codes", [None, "printed"])
@pytest.mark.parametrize("what", ["input", "targets", "weights"])
def test_numbers_whose_squares_are_not_finite_are_refused(what, codes):
    for size in (1e155, 1e200, 1e306):
        model, (x, _) = mlp(), batch()
        y = torch.randn(10, 3, dtype=F64)
        scaled = {"input": [x], "targets": [y], "weights": [p.data for p in model.parameters()]}[what]
        for t in scaled:
            t *= size
        unchanged_by(altmin.AltMin(model, nn.MSELoss(), codes), x, y, (altmin.Diverged, ValueError))


def test_nets_with_in_place_activations_train_as_their_ordinary_twins():
    for kind in (nn.ReLU, nn.ELU, nn.SiLU, nn.LeakyReLU):
        first, second = mlp(kind), mlp(lambda kind=kind: kind(inplace=True))
        for model in (first, second):
            am = altmin.AltMin(model)
            for i in range(3):
                am.step(*batch(i))
        torch.testing.assert_close([*first.parameters()], [*second.parameters()])


@pytest.mark.parametrize(
    ("model", "shape", "block"),
    [
        (nn.Sequential(nn.Linear(6, 3)), (4, 2, 3), "block 0"),
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), (4, 5), "block 0"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), (4, 2, 4, 4), "block 0"),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(6, 3)), (4, 4), r"block 1 \(ReLU, Linear\)"),
    ],
)
def test_an_input_of_the_wrong_shape_names_the_block(model, shape, block):
    before = clone(model.state_dict())
    with pytest.raises(ValueError, match=block):
        altmin.AltMin(model).step(torch.randn(shape), torch.zeros(4, dtype=torch.int64))
    assert equal(model.state_dict(), before)


def frozen() -> nn.Module:
    return mlp().requires_grad_(False)


class Probabilities(nn.Module):
    def __init__(self):
        super().__init__()
        self.below, self.above = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.above(self.below(x).relu()).softmax(1)


WARNED = {
    "Softmax": lambda: altmin.AltMin(nn.Sequential(mlp(), nn.Softmax(1))),
    "softmax": lambda: altmin.AltMin(Probabilities().double()),
    "Sigmoid": lambda: altmin.AltMin(nn.Sequential(mlp(), nn.Sigmoid()), nn.BCEWithLogitsLoss()),
    "sum": lambda: altmin.AltMin(mlp(), nn.CrossEntropyLoss(reduction="sum"), weights=altmin.LocalSGD()),
    "frozen": lambda: altmin.AltMin(frozen()),
}
SOUND = {
    "LogSoftmax, which changes nothing": lambda: altmin.AltMin(nn.Sequential(mlp(), nn.LogSoftmax(1))),
    "Softmax before squares": lambda: altmin.AltMin(nn.Sequential(mlp(), nn.Softmax(1)), nn.MSELoss()),
    "Adam, which has no scale": lambda: altmin.AltMin(mlp(), nn.CrossEntropyLoss(reduction="sum")),
    "SGD": lambda: altmin.AltMin(mlp(), weights=altmin.LocalSGD()),
    "partly frozen": lambda: altmin.AltMin(nn.Sequential(frozen(), nn.Linear(3, 3).double())),
}


@pytest.mark.parametrize("what", WARNED)
def test_a_trainer_that_learns_badly_warns_once(what):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        am = WARNED[what]()
        for i in range(2):
            x, y = batch(i)
            am.step(x, torch.rand(10, 3, dtype=F64) if what == "Sigmoid" else y)
    texts = [(w.filename, str(w.message)) for w in said if w.category is UserWarning]
    assert [(file, what in text) for file, text in texts] == [(__file__, True)]


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("what", SOUND)
def test_a_sound_trainer_does_not_warn(what):
    SOUND[what]()


def test_a_number_stands_for_a_constant_mu():
    x, y = batch()
    short, long = mlp(), mlp()
    plain = altmin.AltMin(short, penalty=3.0)
    spelt = altmin.AltMin(long, penalty=altmin.Penalty(3.0, 0.0, maximum=None))
    for _ in range(3):
        assert plain.step(x, y).penalty == spelt.step(x, y).penalty == 3.0
    assert equal(short.state_dict(), long.state_dict())


class Normed(nn.Module):
    """Batch norm and a mask inside a module of one's own."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, -torch.inf]))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + self.mask.exp()


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), Normed()], ids=["batch norm", "own module"])
def test_statistics_that_would_not_be_finite_are_refused_and_nothing_changes(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), copy.deepcopy(norm), nn.ReLU(), nn.Linear(4, 2))
    trainer, x, y = altmin.AltMin(model), torch.randn(6, 3), torch.randint(2, (6,))
    trainer.step(x, y)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(altmin.Diverged):
        trainer.step(1e25 * x, y)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


class Descent(altmin.WeightRule):
    """Gradient descent with a state, whose functions the rules below replace by what they should not return."""

    lr = 0.1

    def init(self, block, parameters):
        return {"m": list(map(torch.zeros_like, parameters)), "n": [torch.zeros(())]}

    def update(self, parameters, state, contribution, rates):
        return [-rates["lr"] * g for g in contribution], state


RULES_AT_FAULT = {
    "no state": lambda p, state, g, rates: (g, ()),
    "part of the state": lambda p, state, g, rates: (g, {**state, "n": []}),
    "other order": lambda p, state, g, rates: (g, dict(reversed(state.items()))),
    "smaller state": lambda p, state, g, rates: (g, {**state, "m": [t.sum() for t in state["m"]]}),
    "no pair": lambda p, state, g, rates: g,
    "fewer changes": lambda p, state, g, rates: (g[:1], state),
    "smaller changes": lambda p, state, g, rates: ([t.sum() for t in g], state),
    "unknown number": lambda p, state, g, rates: ([-rates["rate"] * t for t in g], state),
}
RUNNERS = {
    "alone": lambda am: am,
    "recorded": lambda am: altmin.Recorded(am, fuse=False),
    "ensemble": lambda am: altmin.Ensemble([am, copy.deepcopy(am)]),
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("fault", RULES_AT_FAULT)
def test_update_of_another_form_is_refused_and_changes_nothing(fault, runner):
    rule = type("Mine", (Descent,), {"update": lambda self, *given: RULES_AT_FAULT[fault](*given)})()
    am = altmin.AltMin(mlp(), weights=rule)
    before = clone(am.model.state_dict())
    with pytest.raises(ValueError, match="update of Mine"):
        RUNNERS[runner](am).step(*batch())
    assert equal(am.model.state_dict(), before)


@pytest.mark.parametrize("state", [0, None, {"count": 0.0}])
def test_state_of_anything_but_tensors_is_refused(state):
    rule = type("Mine", (Descent,), {"init": lambda *_: state})()
    with pytest.raises(TypeError, match="init of Mine returns tensors"):
        altmin.AltMin(mlp(), weights=rule)
