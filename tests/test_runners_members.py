"""A member's step against the same step of a method by itself: the same numbers, whatever differs between members."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ensembles import MEMBERS, NETS, OPTIONS, Build, agree, batches, build, compare, first_frozen, part, weighted
from torch import nn

import altmin
from altmin import Ensemble, models

# One operation without a batching rule is run member by member, which is what an ensemble is there to avoid.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")


@pytest.mark.parametrize("net, own", [("mlp", True), ("mlp", False), ("elman", True), ("lenet5", False)])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_method_trains_its_members_as_separate_runs_would(name: str, net: str, own: bool) -> None:
    compare(lambda: build(name, net, OPTIONS[name]), batches(net, 3 if net == "lenet5" else 5, own))


def shared(share: float, order: str = "codes-first") -> Callable[[], dict[str, Any]]:
    return lambda: {"codes": altmin.GradientCodes(share=share, order=order)}


VARIED: dict[str, tuple[str, str, list[Any]]] = {
    "rates of single blocks": ("am-adam", "mlp", [{"lr": [0.01, 0.02, 0.03]}, {"lr": 0.01}, {"lr": [0.01, 0.01, 0.1]}]),
    "inner steps": ("am-adam", "mlp", [{"steps": 3, "lr": lr} for lr in (0.01, 0.02, 0.03)]),
    "inner steps of sgd": ("am-sgd", "lenet5", [{"steps": 2, "lr": lr} for lr in (1e-5, 2e-5, 3e-5)]),
    "penalty": (
        "am-adam",
        "mlp",
        [
            lambda: {"penalty": altmin.Penalty(0.5, 0.3, 1.0, 1.0)},
            lambda: {"penalty": altmin.Penalty(2.0, 0.0, 1.0, None)},
            lambda: {"penalty": altmin.Penalty(1.0, 1.0, 1.0, None)},
        ],
    ),
    "share": ("am-adam", "mlp", [shared(share) for share in (0.0, 0.1, 1.0)]),
    "share in time": (
        "am-adam",
        "elman",
        [lambda a=a: {"codes": altmin.RecurrentCodes(share=a)} for a in (0.0, 0.5, 1.0)],
    ),
    "share and weights first": ("am-adam", "lenet5", [shared(share, "weights-first") for share in (0.0, 0.1, 1.0)]),
    "column sweeps": (
        "am-mem-fitted",
        "mlp",
        [{"sweeps": 2, "rate": 1.0}, {"sweeps": 2, "rate": 1.0, "forget": 0.5}, {"sweeps": 2, "rate": 0.1}],
    ),
    "the paper's memory": ("am-mem-fitted", "mlp", [{"rate": None, "forget": f} for f in (1.0, 0.9, 0.5)]),
    "exact sweep": ("am-adam", "elman", [{"codes": "exact", "lr": lr} for lr in (0.01, 0.02, 0.03)]),
    "rounds": ("am-adam", "elman", [lambda: {"codes": altmin.RecurrentCodes("parallel", 3)}] * 3),
    "label smoothing": ("am-adam", "mlp", [lambda: {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}] * 3),
    "any loss": ("am-adam", "mlp", [{"loss": nn.functional.cross_entropy}] * 3),
    "weighted loss": ("am-adam", "mlp", [lambda: {"loss": weighted(1.0, 2.0, 3.0)}] * 3),
    "weighted loss in backprop": ("adam", "mlp", [lambda: {"loss": weighted(1.0, 2.0, 3.0)}] * 3),
    "any loss in backprop": ("sgd", "mlp", [lambda: {"loss": nn.CrossEntropyLoss(reduction="sum"), "lr": 0.01}] * 3),
}


@pytest.mark.parametrize("what", VARIED)
def test_members_may_differ_in_their_numbers(what: str) -> None:
    name, net, options = VARIED[what]
    compare(lambda: build(name, net, options), batches(net, 4))


def with_rules(*rules: Callable[[], Any]) -> Build:
    def make() -> list[Any]:
        made = []
        for i, rule in enumerate(rules):
            torch.manual_seed(i)
            made.append(altmin.AltMin(NETS["mlp"][0]().double(), weights=rule()))
        return made

    return make


RULED: dict[str, list[Callable[[], Any]]] = {
    "clipped": [lambda lr=lr: altmin.LocalSGD(lr, clip_norm=0.1) for lr in (0.01, 0.1, 1.0)],
    "not clipped": [lambda lr=lr: altmin.LocalSGD(lr, clip_norm=100.0) for lr in (0.01, 0.1, 0.2)],
    "clipped inner steps": [lambda lr=lr: altmin.LocalSGD(lr, clip_norm=0.1, steps=3) for lr in (0.01, 0.1, 0.2)],
    "decoupled decay": [
        lambda d=d: altmin.LocalAdam(0.01, weight_decay=d, decoupled_weight_decay=True) for d in (0.0, 0.1, 1.0)
    ],
    "numbers of Adam": [
        lambda: altmin.LocalAdam(0.01, betas=(0.5, 0.9)),
        lambda: altmin.LocalAdam(0.01, eps=0.1),
        lambda: altmin.LocalAdam(0.02, weight_decay=0.1),
    ],
}


@pytest.mark.parametrize("what", RULED)
def test_rules_may_differ_in_their_numbers(what: str) -> None:
    compare(with_rules(*RULED[what]), batches("mlp"))


@pytest.mark.parametrize("name", ["am-adam", "am-mem", "am-mem-fitted"])
def test_frozen_layers_stay_and_each_member_keeps_its_own(name: str) -> None:
    ensemble = compare(lambda: build(name, first_frozen, OPTIONS[name]), batches("mlp"))
    for i, method in enumerate(build(name, first_frozen, OPTIONS[name])):
        assert torch.equal(ensemble.member(i)[1].weight, method.model[1].weight)


@pytest.mark.parametrize("name", OPTIONS)
def test_in_single_precision_the_runs_agree_to_its_accuracy(name: str) -> None:
    data = batches("mlp", dtype=torch.float32)
    atol = 2e-3 if name == "am-mem-fitted" else 2e-5
    ensemble = compare(lambda: build(name, "mlp", OPTIONS[name], torch.float32), data, atol)
    assert ensemble.member(0)[1].weight.dtype == torch.float32


def test_squared_error_is_told_apart_by_each() -> None:
    """Targets that are numbers do not show whether they are one mini-batch or many."""

    def make() -> list[Any]:
        return build("am-adam", "mlp", [{"loss": nn.MSELoss(), "lr": lr} for lr in (0.01, 0.02, 0.03)])

    alone, ensemble = make(), Ensemble(make())
    x, y = torch.randn(3, 7, 5, dtype=torch.float64), torch.randn(3, 7, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"one mini-batch for all 3 members or one for each; .* each=True"):
        ensemble.step(x, y)
    for i, method in enumerate(alone):
        method.step(x[i], y[i])
        method.step(x[0], y[0])
    ensemble.step(x, y, each=True)
    ensemble.step(x[0], y[0])
    agree(alone, ensemble)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
    "layer norm": lambda: nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)),
    "other modules": lambda: nn.Sequential(nn.Linear(5, 6), nn.Softmax(1), nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 3)),
    "a second bias": lambda: models.mlp(5, (6, 4), 3, nn.Sigmoid),
}


@pytest.mark.parametrize("name", ["am-adam", "am-mem", "am-mem-fitted", "adam"])
@pytest.mark.parametrize("layers", LAYERS)
def test_layers_with_and_without_closed_forms(layers: str, name: str) -> None:
    compare(lambda: build(name, LAYERS[layers], [{}, {"lr": 0.01}, {"lr": 0.02}]), batches("mlp"), 1e-7)


@pytest.mark.parametrize(
    "name, first",
    [
        ("am-adam", lambda: nn.Embedding(9, 4, padding_idx=1)),
        ("am-adam", lambda: nn.EmbeddingBag(9, 12, padding_idx=1)),
        ("adam", lambda: nn.Embedding(9, 4)),
    ],
    ids=["am-adam", "am-adam of bags", "adam"],
)
def test_inputs_may_be_integers_where_the_first_layer_takes_them(name: str, first: Callable[[], nn.Module]) -> None:
    def net() -> nn.Module:
        return nn.Sequential(first(), nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))

    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randint(high, shape, generator=generator) for high, shape in ((9, (3, 7, 3)), (3, (3, 7))))
    compare(lambda: build(name, net, [{}, {"lr": 0.01}, {"lr": 0.02}]), [(x, y)] * 3)


def test_overlapping_pools_and_average_pools() -> None:
    def net() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.LazyLinear(3)),
        )

    def made() -> nn.Module:
        model = net()
        model(torch.zeros(1, 1, 28, 28))
        return model

    compare(lambda: build("am-adam", made, [{}, {"lr": 0.01}, {"lr": 0.02}]), batches("lenet5", 3))


def test_batch_norm_in_evaluation_has_each_members_own_statistics() -> None:
    def make() -> list[Any]:
        made = build("am-adam", LAYERS["batch norm"], [{}, {}, {}])
        for i, method in enumerate(made):
            method.model[1].eval()
            method.model[1].running_mean.fill_(0.1 * i)
            method.model[1].running_var.fill_(1.0 + i)
        return made

    compare(make, batches("mlp"))


@pytest.mark.parametrize("name", ["am-adam", "adam"])
def test_layers_follow_the_mode_into_which_the_members_are_put(name: str) -> None:
    alone, ensemble = (build(name, LAYERS["batch norm"], [{}, {}, {}]) for _ in range(2))
    ensemble = Ensemble(ensemble)
    for n, batch in enumerate(batches("mlp", 4)):
        for i, method in enumerate(alone):
            method.model.train(n != 2)
            method.step(*part(batch, i))
        ensemble.model.train(n != 2)
        ensemble.step(*batch)
    agree(alone, ensemble, 1e-7)


@pytest.mark.parametrize("name", ["am-adam", "adam"])
def test_every_member_draws_its_own_dropout(name: str) -> None:
    """Members that are the same but for their draws: with p = 0 they stay so, else they part."""
    x, y = torch.ones(40, 5), torch.zeros(40, dtype=torch.int64)
    for p, same in ((0.0, True), (0.5, False)):

        def net(p: float = p) -> nn.Module:
            torch.manual_seed(0)
            return nn.Sequential(nn.Dropout(p), nn.Linear(5, 6), nn.ReLU(), nn.Dropout(p), nn.Linear(6, 3))

        ensemble = Ensemble(build(name, net, [{}, {}], torch.float32))
        losses = ensemble.step(x, y).loss.tolist()
        assert (losses[0] == losses[1]) is same
        assert all(abs(loss - losses[0]) < 0.5 for loss in losses), "the masks have the size that keeps means"


def test_straight_through_codes_work_too() -> None:
    def net() -> nn.Module:
        return models.binary_mlp(5, (6, 4), 3)

    options = [{"codes": "straight-through", "lr": lr} for lr in (0.01, 0.02, 0.03)]
    compare(lambda: build("am-adam", net, options), batches("mlp"))


@pytest.mark.parametrize("own", [True, False], ids=["own data", "shared data"])
@pytest.mark.parametrize("name", ["am-adam", "adam"])
def test_recurrent_layers_with_two_biases(name: str, own: bool) -> None:
    compare(lambda: build(name, _biased, [{}, {"lr": 0.01}, {"lr": 0.02}]), batches("elman", 3, own))


def _biased() -> nn.Module:
    model = models.elman(4, 6, 2, 3)
    nn.init.normal_(model[0].bias_ih_l0)
    return model


@pytest.mark.parametrize("name", ["am-adam", "adam"])
def test_sequences_of_several_lengths(name: str) -> None:
    def net() -> nn.Module:
        return models.elman(4, 6, 2, 3, padded=True)

    generator = torch.Generator().manual_seed(3)
    own = [
        models.pad([torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (2, 6, 4, 1)], 6)
        for _ in range(MEMBERS)
    ]
    y = torch.randint(3, (MEMBERS, 4), generator=generator)
    compare(lambda: build(name, net, [{}, {"lr": 0.01}, {"lr": 0.02}]), [(torch.stack(own), y)] * 3)


def test_an_ensemble_of_one_is_the_single_run() -> None:
    for name, options in OPTIONS.items():
        compare(lambda name=name, options=options: build(name, "mlp", options[2:]), batches("mlp", own=False))


@pytest.mark.parametrize("name", ["am-adam", "am-sgd", "am-mem", "am-mem-fitted"])
def test_a_deep_net(name: str) -> None:
    def net() -> nn.Module:
        model = models.mlp(5, (6,) * 12, 3)
        with torch.no_grad():
            for layer in model[1::2]:
                layer.weight *= 1.3  # or hardly anything would arrive at the bottom
        return model

    compare(lambda: build(name, net, OPTIONS[name]), batches("mlp", 3))


def test_a_member_whose_memory_overflows_keeps_it_and_takes_no_further_part() -> None:
    """Of inputs as large as these the loss is finite; the sum of their squares is not, and a sweep over one column
    makes of it no change of the weights and a memory that is not finite."""

    def make() -> list[Any]:
        def net() -> nn.Module:
            return nn.Sequential(nn.Linear(1, 4, bias=False), nn.ReLU(), nn.Linear(4, 3))

        return build("am-mem-fitted", net, [{"sweeps": 1, "damping": 0.0, "rate": 1.0}] * 2)

    alone, ensemble = make(), Ensemble(make())
    for n, (x, y) in enumerate(batches("mlp", 4)):
        x, y = x[:2, :, :1].clone(), y[:2]
        x[1] *= 1e160 if n == 2 else 1.0
        ensemble.step(x, y)
        alone[0].step(x[0], y[0])
        if n < 2:
            alone[1].step(x[1], y[1])
    assert ensemble.diverged == {1: 3}
    agree(alone, ensemble)
    for method, left in zip(alone, ensemble.methods, strict=True):
        torch.testing.assert_close(left.updates.states, method.updates.states)  # type: ignore[attr-defined]
