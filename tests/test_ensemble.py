"""An ensemble against its members' separate runs: the same numbers, whatever differs between the members."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import Ensemble, methods, models
from altmin.calculus import recurrences
from altmin.codes.linesearch import Doubts

# One operation without a batching rule is run member by member, which is what an ensemble is there to avoid.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")
MEMBERS = 3
Build = Callable[[], list[Any]]
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "mlp": (lambda: models.mlp(5, (6, 4), 3), (5,), 3),
    "lenet5": (lambda: models.lenet5(3), (1, 28, 28), 3),
    "elman": (lambda: models.elman(4, 6, 2, 3), (6, 2), 3),
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "am-adam": [{"lr": 0.01}, {"lr": 0.002, "weight_decay": 0.1}, {"lr": 0.02, "l1": 0.01, "penalty": 3.0}],
    "am-sgd": [{"lr": 0.01}, {"lr": 0.1, "momentum": 0.0}, {"lr": 0.05, "weight_decay": 0.1, "l1": 0.01}],
    "am-mem": [{"lr": 0.01}, {"forget": 0.5, "damping": 3.0}, {"rate": 100.0, "penalty": 2.0}],
    "adam": [{"lr": 0.01}, {"lr": 0.1}, {"weight_decay": 0.1}],
    "sgd": [{"lr": 0.01}, {"momentum": 0.0}, {"lr": 0.05, "weight_decay": 0.1}],
}


def build(
    name: str, net: str | Callable[[], nn.Module], options: Sequence[Any], dtype: Any = torch.float64
) -> list[Any]:
    """A method for each set of options, the i-th with first weights of seed i; options may be made by a function."""
    made = []
    for i, given in enumerate(options):
        torch.manual_seed(i)
        model = (NETS[net][0] if isinstance(net, str) else net)().to(dtype)
        made.append(methods.create(name, model, **(given() if callable(given) else given)))
    return made


def batches(net: str, steps: int = 5, own: bool = True, samples: int = 7, dtype: Any = torch.float64) -> list[Any]:
    """Mini-batches of each member's own, or for all of them."""
    _, shape, classes = NETS[net]
    generator = torch.Generator().manual_seed(11)
    front = (MEMBERS, samples) if own else (samples,)
    return [
        (
            torch.randn(*front, *shape, generator=generator, dtype=dtype),
            torch.randint(classes, front, generator=generator),
        )
        for _ in range(steps)
    ]


def part(batch: tuple[Tensor, Tensor], i: int) -> tuple[Tensor, Tensor]:
    """What member i sees of a batch."""
    x, y = batch
    return (x[i], y[i]) if y.ndim == 2 else (x, y)


def agree(alone: Sequence[Any], ensemble: Ensemble, atol: float = 1e-8, members: Sequence[int] | None = None) -> None:
    """Parameters and buffers of the separate runs are those of the ensemble's members."""
    for i in range(len(alone)) if members is None else members:
        expected, found = alone[i].model.state_dict(), ensemble.member(i).state_dict()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=0, atol=atol, msg=f"member {i}, {name}")


def compare(make: Build, data: Sequence[Any], atol: float = 1e-8) -> Ensemble:
    """Runs both ways, losses and mu held against each other at every step, weights at the end."""
    alone, ensemble = make(), Ensemble(make())
    start = [p.clone() for p in ensemble.model.parameters()]
    for batch in data:
        expected = [method.step(*part(batch, i)) for i, method in enumerate(alone)]
        found = ensemble.step(*batch)
        torch.testing.assert_close(found.loss, torch.stack([e.loss.detach() for e in expected]), rtol=0, atol=atol)
        if found.penalty is not None:
            assert found.penalty.tolist() == [e.penalty for e in expected]
            assert found.objective.tolist() == pytest.approx([e.objective for e in expected], rel=atol)
    agree(alone, ensemble, atol)
    assert any(not torch.equal(a, b) for a, b in zip(start, ensemble.model.parameters(), strict=True))
    assert ensemble.diverged == {}
    return ensemble


@pytest.mark.parametrize("own", [True, False], ids=["own data", "shared data"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_method_trains_its_members_as_separate_runs_would(name: str, net: str, own: bool) -> None:
    compare(lambda: build(name, net, OPTIONS[name]), batches(net, 3 if net == "lenet5" else 5, own))


def weighted(*weights: float) -> nn.Module:
    return nn.CrossEntropyLoss(weight=torch.tensor(weights, dtype=torch.float64))


VARIED: dict[str, tuple[str, str, list[Any]]] = {
    "rates of single blocks": ("am-adam", "mlp", [{"lr": [0.01, 0.02, 0.03]}, {"lr": 0.01}, {"lr": [0.01, 0.01, 0.1]}]),
    "inner steps": ("am-adam", "mlp", [{"steps": 3, "lr": lr} for lr in (0.01, 0.02, 0.03)]),
    "inner steps of sgd": ("am-sgd", "lenet5", [{"steps": 2, "lr": lr} for lr in (0.001, 0.002, 0.003)]),
    "penalty": (
        "am-adam",
        "mlp",
        [
            lambda: {"penalty": altmin.Penalty(0.5, 0.3, 1.0, 1.0)},
            lambda: {"penalty": altmin.Penalty(2.0, 0.0, 1.0, None)},
            lambda: {"penalty": altmin.Penalty(1.0, 1.0, 1.0, None)},
        ],
    ),
    "code step": ("am-adam", "mlp", [{"codes": step} for step in (0.1, 0.2, 0.4)]),
    "code step in time": ("am-adam", "elman", [{"codes": step} for step in (0.1, 0.2, 0.4)]),
    "momentum of codes": (
        "am-sgd",
        "mlp",
        [lambda k=k: {"codes": altmin.GradientCodes(3, lr=0.1, momentum=k)} for k in (0.0, 0.5, 0.9)],
    ),
    "several exact steps": ("am-adam", "mlp", [lambda: {"codes": altmin.GradientCodes(3, momentum=0.5)}] * 3),
    "l1 of codes": ("am-adam", "mlp", [lambda: {"codes": altmin.GradientCodes(2, l1=0.05)}] * 3),
    "column sweeps": ("am-mem", "mlp", [{"sweeps": 2}, {"sweeps": 2, "forget": 0.5}, {"sweeps": 2, "rate": 10.0}]),
    "the paper's memory": ("am-mem", "mlp", [{"rate": None, "forget": f} for f in (1.0, 0.9, 0.5)]),
    "sequential sweep": ("am-adam", "elman", [{"codes": "sequential", "lr": lr} for lr in (0.01, 0.02, 0.03)]),
    "rounds": ("am-adam", "elman", [lambda: {"codes": altmin.RecurrentCodes(rounds=3)}] * 3),
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


def test_adams_own_numbers_may_differ() -> None:
    adam = altmin.LocalAdam
    compare(
        with_rules(
            lambda: adam(0.01, betas=(0.5, 0.9)), lambda: adam(0.01, eps=0.1), lambda: adam(0.02, weight_decay=0.1)
        ),
        batches("mlp"),
    )
    compare(with_rules(*[lambda lr=lr: adam(lr, normalise=False) for lr in (0.01, 0.02, 0.03)]), batches("mlp"))


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


@pytest.mark.parametrize("name", ["am-adam", "am-mem", "adam"])
@pytest.mark.parametrize("layers", LAYERS)
def test_layers_with_and_without_closed_forms(layers: str, name: str) -> None:
    compare(lambda: build(name, LAYERS[layers], [{}, {"lr": 0.01}, {"lr": 0.02}]), batches("mlp"), 1e-7)


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


def test_frozen_layers_stay_and_each_member_keeps_its_own() -> None:
    def make() -> list[Any]:
        made = build("am-adam", lambda: _frozen(models.mlp(5, (6, 4), 3)), [{}, {"lr": 0.01}, {"lr": 0.02}])
        return made

    ensemble = compare(make, batches("mlp"))
    for i, method in enumerate(make()):
        assert torch.equal(ensemble.member(i)[1].weight, method.model[1].weight)


def _frozen(model: nn.Module) -> nn.Module:
    models.freeze_first(model)
    return model


@pytest.mark.parametrize("name", OPTIONS)
def test_in_single_precision_the_runs_agree_to_its_accuracy(name: str) -> None:
    alone = build(name, "mlp", OPTIONS[name], torch.float32)
    ensemble = Ensemble(build(name, "mlp", OPTIONS[name], torch.float32))
    for batch in batches("mlp", dtype=torch.float32):
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        ensemble.step(*batch)
    agree(alone, ensemble, 2e-3 if name == "am-mem" else 2e-5)
    assert ensemble.member(0)[1].weight.dtype == torch.float32


def test_recurrences_too_large_to_lie_side_by_side_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrences, "LARGEST", 3 * 4 - 1)
    for own, name in ((True, "am-adam"), (False, "am-adam"), (True, "adam"), (False, "adam")):
        compare(lambda name=name: build(name, _biased, [{}, {"lr": 0.01}, {"lr": 0.02}]), batches("elman", 3, own))


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


def strong(name: str, seed: int) -> nn.Module:
    """Far from the linear range: with a small mu, steps that raise the objective are tried now and then."""
    torch.manual_seed(seed)
    model = NETS[name][0]().double()
    with torch.no_grad():
        for p in model.parameters():
            p *= 6
    return model


@pytest.mark.parametrize("net", ["mlp", "elman"])
@pytest.mark.parametrize("how", ["step", "thorough"])
def test_a_step_taken_in_doubt_is_halved_as_in_a_separate_run(
    net: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members 1 and 2 of strong weights, which do halve; member 0 of a large mu, which does not."""
    halvings: list[int] = []
    ask = Doubts.confirmed

    def counted(self: Doubts, rose: Tensor) -> bool:
        answer = ask(self, rose)
        halvings[-1] += answer and self.wait
        return answer

    def make() -> list[Any]:
        mus = (1000.0, 0.01, 0.01)
        return [altmin.AltMin(strong(net, i), penalty=mu) for i, mu in enumerate(mus)]

    data = batches(net, 4)
    alone, ensemble = make(), Ensemble(make())
    doubts: list[list[bool]] = []
    with monkeypatch.context() as patch:
        patch.setattr(Doubts, "confirmed", counted)
        for batch in data:
            for i, method in enumerate(alone):
                halvings.append(0)
                method.step(*part(batch, i))
    for batch in data:
        if how == "step":
            keep = ensemble._keep
            with monkeypatch.context() as patch:
                patch.setattr(
                    ensemble, "_keep", lambda *a, keep=keep, **k: (doubts.append(a[1].tolist()), keep(*a, **k))
                )
                ensemble.step(*batch)
        else:
            ensemble.advance(*batch, thorough=True)
    agree(alone, ensemble)
    assert sum(halvings) > 0
    assert sum(halvings[::3]) == 0
    if how == "step":
        assert [bool(n) for n in halvings] == [doubt for step in doubts for doubt in step]
    assert not ensemble.doubtful.any()


@pytest.mark.parametrize("name", ["am-adam", "am-sgd", "am-mem"])
def test_a_deep_net_whose_offsets_are_magnified(name: str) -> None:
    def net() -> nn.Module:
        model = models.mlp(5, (6,) * 12, 3)
        with torch.no_grad():
            for layer in model[1::2]:
                layer.weight *= 1.3  # or hardly anything would arrive at the bottom
        return model

    compare(lambda: build(name, net, OPTIONS[name]), batches("mlp", 3))
