"""An ensemble: views, ordinary methods, saved states, and divergence that stays with one member."""

import copy
from typing import Any

import pytest
import torch
from ensembles import NETS, OPTIONS, agree, batches, build, first_frozen, part, sick, spoil
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import altmin
from altmin import Diverged, Ensemble, models
from altmin.training.schedule import Schedule

pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")

EVERY = pytest.mark.parametrize(
    "name, net", [*((name, "mlp") for name in OPTIONS), ("am-adam", "elman"), ("adam", "elman")]
)


def trained(name: str = "am-adam", net: str = "mlp", steps: int = 4) -> tuple[list[Any], Ensemble]:
    """Separate runs and an ensemble after the same steps."""
    alone, ensemble = build(name, net, OPTIONS[name]), Ensemble(build(name, net, OPTIONS[name]))
    for batch in batches(net, steps):
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        ensemble.step(*batch)
    return alone, ensemble


def test_a_member_is_an_ordinary_module_whose_parameters_are_views() -> None:
    made = build("am-adam", "mlp", OPTIONS["am-adam"])
    own = [method.model for method in made]
    ensemble = Ensemble(made)
    x, y = batches("mlp", 1)[0]
    ensemble.step(x, y)
    for i, model in enumerate(own):
        assert ensemble.member(i) is model, "the model that was given"
        places = {p.untyped_storage().data_ptr() for p in model.parameters()}
        stacked = {rows.untyped_storage().data_ptr() for group in ensemble.groups for rows in group.rows.values()}
        assert places <= stacked
        linear = [model[k] for k in (1, 3, 5)]
        h = x[i]
        for layer in linear[:-1]:
            h = (h @ layer.weight.T + layer.bias).clamp_min(0)
        torch.testing.assert_close(model(x[i]), h @ linear[-1].weight.T + linear[-1].bias)
    with torch.no_grad():
        own[1][1].weight.zero_()  # writing into a member writes into the ensemble
    loss = ensemble.step(x, y).loss
    assert loss[1].item() == pytest.approx(nn.functional.cross_entropy(_dead(own[1], x[1]), y[1]).item(), abs=0.3)
    assert set(own[0].state_dict()) == set(NETS["mlp"][0]().state_dict())


def _dead(model: nn.Module, x: Tensor) -> Tensor:
    return model(torch.zeros_like(x))


@EVERY
def test_a_method_goes_on_alone_as_if_it_had_never_been_in_an_ensemble(name: str, net: str) -> None:
    alone, ensemble = trained(name, net)
    ensemble.end_epoch()
    left = ensemble.methods
    for method in alone:
        method.end_epoch()
    for batch in batches(net, 7)[4:]:
        for i in range(3):
            expected, found = alone[i].step(*part(batch, i)), left[i].step(*part(batch, i))
            assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-8)
    agree(alone, ensemble)


def test_mu_and_memories_of_the_methods_are_copies() -> None:
    _, ensemble = trained("am-mem-fitted")
    left: Any = ensemble.methods[0]
    mu, memory = left.penalty.value, left.updates.states[0]["A"]
    A = memory.clone()
    ensemble.step(*batches("mlp", 1)[0])
    assert left.penalty.value == mu
    assert torch.equal(memory, A)
    again: Any = ensemble.methods[0]
    assert again.penalty.value > mu
    assert not torch.equal(again.updates.states[0]["A"], A)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_state_of_a_member_is_that_of_a_separate_run(name: str) -> None:
    alone, ensemble = trained(name)
    for expected, found in zip(alone, ensemble.methods, strict=True):
        same(found.state_dict(), expected.state_dict())


def same(found: Any, expected: Any) -> None:
    """The same keys, and values to 1e-8."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(expected, Tensor | float):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    else:
        assert found == expected


@pytest.mark.parametrize("name", OPTIONS)
def test_methods_that_have_learned_alone_come_into_an_ensemble_with_their_state(name: str) -> None:
    alone, other = build(name, "mlp", OPTIONS[name]), build(name, "mlp", OPTIONS[name])
    data = batches("mlp", 6)
    for batch in data[:3]:
        for made in (alone, other):
            for i, method in enumerate(made):
                method.step(*part(batch, i))
    ensemble = Ensemble(other)
    for batch in data[3:]:
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        ensemble.step(*batch)
    agree(alone, ensemble)


@pytest.mark.parametrize("name", ["am-adam", "am-mem", "am-mem-fitted", "adam"])
def test_a_saved_ensemble_goes_on_as_one_that_was_not(name: str) -> None:
    _, ensemble = trained(name)
    for group in ensemble.optimizer.param_groups:
        group["lr"] *= 0.5
    state = copy.deepcopy((ensemble.model.state_dict(), ensemble.state_dict()))
    other = Ensemble(build(name, "mlp", OPTIONS[name]))
    other.model.load_state_dict(state[0])
    other.load_state_dict(state[1])
    for batch in batches("mlp", 6)[4:]:
        expected, found = ensemble.step(*batch), other.step(*batch)
        assert torch.equal(expected.loss, found.loss)
    torch.testing.assert_close([*ensemble.model.parameters()], [*other.model.parameters()], rtol=0, atol=0)
    assert other.steps == 6
    with pytest.raises(ValueError):
        Ensemble(build(name, "mlp", OPTIONS[name][:2])).load_state_dict(state[1])
    with pytest.raises(ValueError):
        other.load_state_dict({"taken": [3, 3, 3]})


def test_an_ensemble_whose_members_were_moved_elsewhere_says_so() -> None:
    x, y = torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0])

    def made() -> Ensemble:
        return Ensemble([altmin.methods.create("am-adam", models.mlp(5, (6,), 3).double()) for _ in range(2)])

    copied, moved, taken = copy.deepcopy(made()), made(), made()
    moved.model.float().double()
    other = Ensemble(taken.methods)
    for ensemble in (copied, moved, taken):
        with pytest.raises(ValueError, match=r"no longer lie in this Ensemble.*build a new Ensemble"):
            ensemble.step(x, y)
        before = copy.deepcopy(ensemble.member(0).state_dict())
        again = other if ensemble is taken else Ensemble(ensemble.methods)
        again.step(x, y)
        assert any(not torch.equal(p, before[name]) for name, p in again.member(0).state_dict().items())


def test_mu_grows_with_the_epochs_of_each_member() -> None:
    def make() -> list[Any]:
        rules = [altmin.Penalty(1.0, 0.5, growth, maximum) for growth, maximum in ((1.0, 3.0), (2.0, None), (2.0, 4.0))]
        nets = [method.model for method in build("sgd", "mlp", [{}] * 3)]
        return [altmin.AltMin(net, penalty=rule) for net, rule in zip(nets, rules, strict=True)]

    alone, ensemble = make(), Ensemble(make())
    for n, batch in enumerate(batches("mlp", 6)):
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        found = ensemble.step(*batch)
        if n % 2:
            ensemble.end_epoch()
            for method in alone:
                method.end_epoch()
    assert found.penalty is not None
    assert [method.penalty.value for method in ensemble.methods] == [3.0, 22.0, 4.0]  # by hand: 1 2 | 4 5 | 10 11 | 22
    agree(alone, ensemble)


@EVERY
def test_a_member_whose_own_batch_is_not_finite_passes_it_over(name: str, net: str) -> None:
    options, data = sick("data", name, net)
    alone, ensemble = build(name, net, options), Ensemble(build(name, net, options))
    for n, batch in enumerate(data):
        for i in range(3):
            if (n, i) != (2, 1):
                alone[i].step(*part(batch, i))
            elif hasattr(alone[i], "updates"):
                alone[i].updates.count += 1  # a memory is factorised in the same step for all
        assert ensemble.step(*batch).loss.isnan().tolist() == [False, n == 2, False]
    agree(alone, ensemble)
    assert ensemble.diverged == {}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_batch_for_all_that_is_not_finite_is_refused_and_changes_nothing(name: str) -> None:
    ensemble = Ensemble(build(name, "mlp", OPTIONS[name]))
    x, y = batches("mlp", 1, own=False)[0]
    before = [t.clone() for t in ensemble.tensors()]
    with pytest.raises(ValueError, match=r"the batch holds NaN or infinite values; clean it .*nothing was changed"):
        ensemble.step(x * torch.inf, y)
    assert all(torch.equal(a, b) for a, b in zip(before, ensemble.tensors(), strict=True))
    ensemble.advance(x * torch.nan, y)
    assert all(torch.equal(a, b) for a, b in zip(before, ensemble.tensors(), strict=True))
    assert ensemble.step(x, y).loss.isfinite().all()


@EVERY
def test_a_member_that_diverges_stops_and_the_others_do_not_notice(name: str, net: str) -> None:
    options, data = sick("rate", name, net)
    alone, ensemble = build(name, net, options), Ensemble(build(name, net, options))
    kept: list[dict[str, Tensor]] = []
    for batch in data:
        for i in (0, 2):
            alone[i].step(*part(batch, i))
        kept.append(copy.deepcopy(ensemble.member(1).state_dict()))
        loss = ensemble.step(*batch).loss
    agree(alone, ensemble, members=(0, 2))
    (member, step), *others = ensemble.diverged.items()
    assert (member, others) == (1, [])
    assert step < len(data)
    for name_, value in ensemble.member(1).state_dict().items():
        assert torch.equal(value, kept[step - 1][name_]), "as before the failing step"
        assert value.isfinite().all()
    assert ensemble.alive.tolist() == [True, False, True]
    assert loss.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["am-adam", "am-sgd", "adam", "sgd"])
def test_a_member_whose_new_weights_are_not_finite_keeps_the_old_ones(name: str) -> None:
    options: list[Any] = [{}, {"lr": 1e308}]
    ensemble, alone = Ensemble(build(name, "mlp", options)), build(name, "mlp", options)
    x, y = batches("mlp", 1, own=False)[0]
    x = 1e3 * x  # for large gradients
    assert ensemble.step(x, y).loss.isfinite().all()
    assert ensemble.diverged == {1: 1}
    agree(alone, ensemble, 0.0, members=[1])
    alone[0].step(x, y)
    agree(alone, ensemble, members=[0])


def test_an_input_that_is_not_finite_is_noticed_even_if_a_rectifier_hides_it() -> None:
    members = build("am-adam", first_frozen, [{}, {}])  # frozen, or its new weights would tell
    with torch.no_grad():
        members[1].model[1].weight.abs_()
    x, y = (t.repeat(2, *[1] * t.ndim) for t in batches("mlp", 1, own=False)[0])
    x[1, 0] = -torch.inf
    assert members[1].model(x[1]).isfinite().all(), "relu(-inf) is 0"
    assert Ensemble(members).step(x, y).loss.isnan().tolist() == [False, True]


@pytest.mark.parametrize("net", ["mlp", "elman"])
def test_a_gradient_that_is_not_finite_stays_with_its_member_even_if_the_loss_is(net: str) -> None:
    """The square root of zero has no slope: here that of every sample with the label 2, which one member has."""

    def loss(o: Tensor, y: Tensor) -> Tensor:
        kink = ((y == 2).unsqueeze(1) * o * 0 + (y != 2).unsqueeze(1)).sqrt()
        return nn.functional.cross_entropy(o, y) + kink.mean()

    def first_alone() -> nn.Module:
        """Only the first layer is trained: nothing else could tell."""
        model = NETS[net][0]()
        model[2 if net == "mlp" else 1 :].requires_grad_(False)
        return model

    def make() -> list[Any]:
        return build("adam", first_alone, [{"loss": loss}] * 3)

    alone, ensemble = make(), Ensemble(make())
    for x, y in batches(net, 3):
        y = y.clamp_max(1)
        y[1, 0] = 2
        for i in (0, 2):
            alone[i].step(x[i], y[i])
        ensemble.step(x, y)
    assert ensemble.diverged == {1: 1}
    agree(alone, ensemble, members=(0, 2))


def test_a_diverged_members_state_stays_and_is_remembered() -> None:
    data = batches("mlp", 6)
    options = [lambda: {"penalty": altmin.Penalty(growth=2.0)}] * 3
    ensemble = Ensemble(build("am-adam", "mlp", options))
    for n, batch in enumerate(data):
        if n == 2:
            spoil(ensemble.member(1))
        ensemble.step(*batch)
    ensemble.end_epoch()
    alone = build("am-adam", "mlp", options)[1]
    for batch in data[:2]:
        alone.step(*part(batch, 1))
    assert ensemble.methods[1].penalty.value == alone.penalty.value  # type: ignore[attr-defined]
    other = Ensemble(build("am-adam", "mlp", options))
    other.load_state_dict(ensemble.state_dict())
    assert other.diverged == {1: 3}
    assert other.step(*data[0]).loss.isnan().tolist() == [False, True, False]


def test_if_all_diverge_step_says_so_and_changes_nothing() -> None:
    ensemble = Ensemble(build("am-adam", "mlp", [{}, {}]))
    before = [p.clone() for p in ensemble.model.parameters()]
    x = torch.full((7, 5), 1e308, dtype=torch.float64)
    with pytest.raises(Diverged, match="every member is not finite; lower the learning rate"):
        ensemble.step(x, torch.zeros(7, dtype=torch.int64))
    assert all(torch.equal(a, b) for a, b in zip(before, ensemble.model.parameters(), strict=True))
    assert ensemble.diverged == {0: 1, 1: 1}


@pytest.mark.parametrize("name", OPTIONS)
def test_advance_takes_the_steps_of_step(name: str) -> None:
    options, data = sick("data", name)
    one, other = Ensemble(build(name, "mlp", options)), Ensemble(build(name, "mlp", options))
    for n, batch in enumerate(data):
        if n == 4:
            spoil(one.member(1))
            spoil(other.member(1))
        assert torch.equal(one.step(*batch).loss.nan_to_num(), other.advance(*batch).nan_to_num())
    torch.testing.assert_close([*one.model.parameters()], [*other.model.parameters()], rtol=0, atol=0)
    assert one.diverged == other.diverged == {1: 4}, "the third batch was passed over, the fifth was too much"


class Watch(TorchDispatchMode):
    """Notes operations that would make the processor wait for a GPU: numbers asked for, or Python's handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(word in str(func) for word in ("_local_scalar_dense", "nonzero", "lift_fresh", "aten.equal")):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("net, own", [("mlp", True), ("mlp", False), ("elman", True), ("lenet5", False)])
@pytest.mark.parametrize("name", OPTIONS)
def test_advance_asks_for_no_number_and_hands_over_none(name: str, net: str, own: bool) -> None:
    ensemble = Ensemble(build(name, net, OPTIONS[name]))
    first, *data = batches(net, 3, own)
    ensemble.advance(*first)  # constants are made on the first call
    with Watch() as watch:
        ensemble.advance(*data[0])
        ensemble.advance(*data[1])
        ensemble.end_epoch()
        Schedule("linear", ensemble.optimizer, 1, 5).after_batch(1)
    assert watch.seen == []
    with Watch() as watch:
        assert bool(ensemble.alive.any() & torch.tensor([True]))
    assert watch.seen == ["aten.lift_fresh.default", "aten._local_scalar_dense.default"], "it would be noticed"


def test_a_schedule_moves_every_members_own_rate() -> None:
    rates = (0.1, 0.01, 0.001)
    alone = build("am-sgd", "mlp", [{"lr": lr} for lr in rates])
    ensemble = Ensemble(build("am-sgd", "mlp", [{"lr": lr} for lr in rates]))
    plans = [Schedule("linear", method.optimizer, 1, 5) for method in alone]
    plan = Schedule("linear", ensemble.optimizer, 1, 5)
    for n, batch in enumerate(batches("mlp", 5), 1):
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
            plans[i].after_batch(n)
        ensemble.step(*batch)
        plan.after_batch(n)
        expected = pytest.approx([lr * (1 - n / 5) for lr in rates])
        assert ensemble.optimizer.param_groups[0]["lr"].tolist() == expected
        assert [m.optimizer.param_groups[0]["lr"] for m in ensemble.methods] == expected
    agree(alone, ensemble)
    plan.after_batch(0)
    assert [m.optimizer.param_groups[0]["lr"] for m in ensemble.methods] == list(rates)
