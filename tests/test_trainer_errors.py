"""Bad input to `AltMin`: refused in one clear sentence, and nothing of the run has changed."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
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
    "too many features": (lambda: (torch.randn(5, 7, dtype=F64), torch.zeros(5, dtype=torch.int64)), "shape|7"),
    "float32 into float64": (lambda: batch(dtype=torch.float32), r"model is torch.float64.*input torch.float32"),
    "integer input": (lambda: labels(lambda y: y)[::-1], "model is torch.float64"),
    "another device": (lambda: tuple(t.to("meta") for t in batch()), "on cpu, the input.*on meta"),
    "targets on another device": (lambda: labels(lambda y: y.to("meta")), "input is on cpu, the targets on meta"),
    "label too high": (lambda: labels(lambda y: y + 3), "label 5 is out of range: the model has 3 outputs"),
    "label below zero": (lambda: labels(lambda y: y - 1), "label -1 is out of range.*from 0 to 2"),
    "label dtype": (lambda: labels(lambda y: y.int()), "one int64 label per sample.*int32"),
    "labels as floats": (lambda: labels(lambda y: y.double()), "one int64 label per sample.*float64"),
    "labels as a column": (lambda: labels(lambda y: y.unsqueeze(1)), r"one int64 label per sample.*\(10, 1\)"),
    "NaN": (nan_input, "input holds NaN or infinite"),
    "infinity": (infinite_input, "input holds NaN or infinite"),
    "empty": (
        lambda: (torch.zeros(0, 4, dtype=F64), torch.zeros(0, dtype=torch.int64)),
        r"at least one sample.*\(0, 4\)",
    ),
    "one vector": (lambda: (torch.zeros(4, dtype=F64), torch.zeros(4, dtype=torch.int64)), r"mini-batch.*\(4,\)"),
    "lengths": (lambda: labels(lambda y: y[:7]), "as many targets as samples.*10 samples"),
    "one number as target": (lambda: labels(lambda y: y[0]), "as many targets as samples"),
}


def unchanged_by(am: altmin.AltMin, x, y, words: str, error=(ValueError, TypeError, RuntimeError)) -> None:
    before = clone((am.model.state_dict(), am.state_dict(), am.penalty.value))
    with pytest.raises(error, match=words):
        am.step(x, y)
    assert equal((am.model.state_dict(), am.state_dict(), am.penalty.value), before)


@pytest.mark.parametrize(
    "case, rule", [*((case, "adam") for case in BAD), *(("NaN", rule) for rule in RULES), ("label too high", "memory")]
)
def test_bad_input_gets_a_clear_error_and_changes_nothing(case, rule):
    make, words = BAD[case]
    for model in (mlp(), convolutional()):
        am = altmin.AltMin(model, weights=RULES[rule]())
        am.step(*batch())
        unchanged_by(am, *make(), words)


def test_arrays_and_lists_are_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"step takes tensors, given list and list; use torch.as_tensor"):
        altmin.AltMin(mlp()).step([[0.0] * 4], [1])


def test_one_sample_is_too_few_for_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    am = altmin.AltMin(model)
    am.step(*batch())
    unchanged_by(am, *batch(n=1), "batch norm in training needs more than one value per channel", ValueError)


def test_targets_of_another_shape_are_no_match_for_the_squared_error():
    am = altmin.AltMin(mlp(), nn.MSELoss())
    x, _ = batch()
    am.step(x, torch.randn(10, 3, dtype=F64))
    unchanged_by(am, x, torch.randn(10, 1, dtype=F64), r"like with like.*\(10, 3\).*\(10, 1\)", ValueError)
    unchanged_by(am, x, torch.randn(10, 3), "like with like.*float64.*float32", ValueError)


def test_a_loss_must_be_a_scalar():
    am = altmin.AltMin(mlp(), nn.CrossEntropyLoss(reduction="none"))
    unchanged_by(am, *batch(), "the loss must return a scalar tensor", ValueError)


def test_weights_that_have_left_the_finite_numbers_are_reported_with_their_block():
    model = mlp()
    am = altmin.AltMin(model)
    with torch.no_grad():
        model[2].weight[0, 0] = float("nan")
    with pytest.raises(altmin.Diverged, match=r"training diverged: block 1 \(ReLU, Linear\) is not finite"):
        am.step(*batch())


@pytest.mark.parametrize("codes", [None, 0.1, altmin.GradientCodes(steps=3, momentum=0.5, tolerance=0.1)])
@pytest.mark.parametrize("what", ["input", "targets", "weights"])
def test_numbers_whose_squares_are_not_finite_are_refused(what, codes):
    for size in (1e155, 1e200, 1e306):
        model, (x, _) = mlp(), batch()
        y = torch.randn(10, 3, dtype=F64)
        scaled = {"input": [x], "targets": [y], "weights": [p.data for p in model.parameters()]}[what]
        for t in scaled:
            t *= size
        words = "training diverged|input holds|targets hold"
        unchanged_by(altmin.AltMin(model, nn.MSELoss(), codes), x, y, words, (altmin.Diverged, ValueError))


class WithBatchNorm(nn.Module):
    """A residual block as people write it: altmin does not know it, and it keeps running statistics."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.layer(x)))


def test_a_module_of_ones_own_keeps_running_statistics_as_pytorch_does():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), WithBatchNorm(), nn.Linear(6, 3)).double()
    twin, (x, y) = clone(model), batch()
    twin(x)
    altmin.AltMin(model).step(x, y)
    torch.testing.assert_close(model[2].norm.running_mean, twin[2].norm.running_mean)
    torch.testing.assert_close(model[2].norm.num_batches_tracked, twin[2].norm.num_batches_tracked)


def test_nets_with_in_place_activations_train_as_their_ordinary_twins():
    for kind in (nn.ReLU, nn.ELU, nn.SiLU, nn.LeakyReLU):
        first, second = mlp(kind), mlp(lambda kind=kind: kind(inplace=True))
        for model in (first, second):
            am = altmin.AltMin(model)
            for i in range(3):
                am.step(*batch(i))
        torch.testing.assert_close([*first.parameters()], [*second.parameters()])


@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        (nn.Sequential(nn.Linear(6, 3)), (4, 2, 3), r"block 0 \(Linear\).*expects 6 features.*\(4, 2, 3\).*Flatten"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
            (4, 5),
            r"block 0 \(Flatten, Linear\).*expects 6 features.*\(4, 5\)",
        ),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), (4, 2, 4, 4), "Conv2d expects 1 channels"),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(6, 3)), (4, 4), r"block 1 \(ReLU, Linear\).*expects 6"),
    ],
)
def test_an_input_of_the_wrong_shape_names_the_block_and_what_it_expects(model, shape, words):
    before = clone(model.state_dict())
    with pytest.raises(ValueError, match=words):
        altmin.AltMin(model).step(torch.randn(shape), torch.zeros(4, dtype=torch.int64))
    assert equal(model.state_dict(), before)


def test_a_number_stands_for_a_fixed_code_step_and_for_a_constant_mu():
    x, y = batch()
    short, long = mlp(), mlp()
    long.load_state_dict(short.state_dict())
    plain = altmin.AltMin(short, codes=0.1, penalty=3.0)
    spelt = altmin.AltMin(long, codes=altmin.GradientCodes(lr=0.1), penalty=altmin.Penalty(3.0, 0.0, maximum=None))
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
    ensemble = altmin.Ensemble([altmin.methods.create("adam", copy.deepcopy(model)) for _ in range(2)])
    ensemble.step(1e25 * x, y)
    assert ensemble.diverged == {0: 1, 1: 1}
    torch.testing.assert_close(ensemble.member(0).state_dict(), before, rtol=0, atol=0)
