"""What a recorded step has of its own: other batches, steps that are not finite, changes, states, refusals.

On a GPU a CUDA graph is replayed; on a CPU the same function of tensors is called.
"""

import copy
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from runner_cases import F64, NETS, RULES, build, mlp, same, same_models, state
from torch import Tensor, nn

import altmin
from altmin import Recorded
from altmin.methods.backprop import Backprop
from altmin.runners.capture import step_of
from altmin.runners.recorded import CHECK_EVERY
from altmin.training import fit

MEMORIES = [name for name in RULES if "memory" in name or "sums" in name]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request: pytest.FixtureRequest) -> str:
    return request.param


def pair(net: str, rule: str, place: str, **options: Any) -> tuple[Any, Any]:
    """A method as it is, and one like it, recorded."""
    return build(net, rule, 0, place, **options), Recorded(build(net, rule, 0, place, **options), fuse=False)


def steps(data: list[tuple[Tensor, Tensor]], *methods: Any) -> None:
    for x, y in data:
        for method in methods:
            method.step(x, y)


@pytest.mark.parametrize("net", ["normed", "resnet18"])
def test_batches_that_are_not_like_the_recorded_one_take_the_ordinary_step(net: str, place: str) -> None:
    """Of another shape, in another mode, with statistics that are fixed then, or with weights; which is said once."""
    ordinary, recorded = pair(net, "adam", place)
    data = NETS[net].batches(7, place)
    data[2] = (data[2][0][:3], data[2][1][:3])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i, (x, y) in enumerate(data):
            for method in (ordinary, recorded):
                method.model.train(i not in (4, 5))
                method.step(x, y)
    assert recorded.others == 3
    assert len([w for w in said if "takes the ordinary step" in str(w.message)]) == 1
    same_models(ordinary.model, recorded.model, 1e-6)


def test_sample_weights_and_several_inputs_take_the_ordinary_step(place: str) -> None:
    ordinary, recorded = pair("regression", "adam", place)
    (x, y), *_ = NETS["regression"].batches(1, place)
    recorded.step(x, y)
    ordinary.step(x, y)
    weights = torch.arange(1.0, 8.0, dtype=F64, device=place)
    with pytest.warns(UserWarning, match="takes the ordinary step"):
        recorded.step(x, y, sample_weight=weights)
    ordinary.step(x, y, sample_weight=weights)
    same_models(ordinary.model, recorded.model)


def test_metrics_are_those_of_the_ordinary_step_whenever_they_are_read(place: str) -> None:
    ordinary, recorded = pair("12 layers", "mu", place)
    expected, found = ([m.step(x, y) for x, y in NETS["12 layers"].batches(3, place)] for m in (ordinary, recorded))
    for a, b in zip(expected, found, strict=True):
        assert b.loss.dtype == a.loss.dtype
        assert (b.penalty, b.objective) == (a.penalty, pytest.approx(a.objective, rel=1e-12))
        assert b.residuals == pytest.approx(a.residuals, rel=1e-9)
        assert b.movements == pytest.approx(a.movements, rel=1e-9)


def test_dropout_draws_other_masks_at_every_step_those_of_the_ordinary_one(place: str) -> None:
    def made() -> altmin.AltMin:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.5), nn.ReLU(), nn.Linear(30, 3)).to(place, F64)
        return altmin.AltMin(model, weights=altmin.LocalSGD(2**-60, momentum=0.0))

    (x, y), losses = NETS["normed"].batches(1, place)[0], []
    for method in (made(), Recorded(made(), fuse=False)):
        torch.manual_seed(7)
        losses.append([float(method.step(x, y).loss) for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert len(set(losses[1])) == 4


def test_a_step_goes_on_where_the_method_was_and_hands_back_to_it(place: str) -> None:
    """Two ordinary steps, two recorded, two ordinary: six ordinary ones."""
    for rule in ("adam", "sgd", *MEMORIES):
        ordinary, other = (build("normed", rule, 0, place) for _ in range(2))
        data = NETS["normed"].batches(6, place)
        steps(data, ordinary)
        steps(data[:2], other)
        recorded = Recorded(other, fuse=False)
        steps(data[2:4], recorded)
        recorded.synchronize()
        steps(data[4:], other)
        same(state(other), state(ordinary), 1e-7)
        assert all(type(group["lr"]) is float for group in other.optimizer.param_groups)


def test_two_of_one_method_write_to_the_same_weights(place: str) -> None:
    ordinary, method = (build("normed", "mu", 0, place) for _ in range(2))
    both = [Recorded(method, fuse=False) for _ in range(2)]
    for i, (x, y) in enumerate(NETS["normed"].batches(6, place)):
        ordinary.step(x, y)
        both[i % 2].step(x, y)
        both[i % 2].synchronize()
    same(state(method), state(ordinary))


def test_rates_and_mu_that_change_on_the_processor_reach_the_device(place: str) -> None:
    ordinary, recorded = pair("12 layers", "mu", place)
    others = pair("normed", "backprop adam", place)
    for i, (x, y) in enumerate(NETS["12 layers"].batches(5, place)):
        for method in (ordinary, recorded, *others):
            method.optimizer.param_groups[0]["lr"] *= 0.5
            method.step(x, y)
            if i % 2:
                method.end_epoch()
        for method in (ordinary, recorded):
            method.penalty.value *= 1.5
    same(state(recorded), state(ordinary))
    same(state(others[1]), state(others[0]))


@pytest.mark.parametrize("rule", [*MEMORIES, "adam", "backprop adam"])
def test_a_state_is_loaded_at_any_time(rule: str, place: str) -> None:
    ordinary, recorded = pair("normed", rule, place)
    data = NETS["normed"].batches(6, place)
    steps(data[:3], ordinary, recorded)
    kept, weights = copy.deepcopy(recorded.state_dict()), copy.deepcopy(recorded.model.state_dict())
    steps(data[:3], recorded)
    recorded.model.load_state_dict(weights)
    recorded.load_state_dict(kept)
    steps(data[3:], ordinary, recorded)
    same(state(recorded), state(ordinary), 1e-7)


@pytest.mark.parametrize("rule", ["adam", "solved memory", "backprop adam"])
def test_training_with_a_schedule_and_a_smaller_last_batch(rule: str, place: str) -> None:
    x, y = (torch.cat(t) for t in zip(*NETS["normed"].batches(5, place), strict=True))
    ends = []
    for method in pair("normed", rule, place):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = fit(method, (x, y), (x, y), epochs=3, batch_size=16, seed=3, schedule="cosine")
        ends.append((state(method), [row["train_loss"] for row in history.epochs]))
    same(*ends, 1e-5)  # the rates of a cosine are rounded to float32


# -- steps that are not finite ----------------------------------------------------------------------------------------


ASKS = {
    "synchronize": lambda method: method.synchronize(),
    "model": lambda method: method.model,
    "penalty": lambda method: method.penalty,
    "state": lambda method: method.state_dict(),
    "epoch": lambda method: method.end_epoch(),
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_step_that_is_not_finite_is_found_when_somebody_asks(ask: str, place: str) -> None:
    ordinary, recorded = pair("normed", "adam", place)
    data = NETS["normed"].batches(4, place)
    steps(data[:2], ordinary, recorded)
    steps([(data[1][0] * torch.nan, data[1][1]), data[2]], recorded)
    with pytest.raises(altmin.Diverged, match=r"step 3 of the last 4"):
        ASKS[ask](recorded)
    same(state(recorded), state(ordinary))
    steps(data[2:], ordinary, recorded)
    same(state(recorded), state(ordinary))


def test_nobody_waits_longer_than_256_steps_to_hear_of_it(place: str) -> None:
    recorded = pair("normed", "adam", place)[1]
    x, y = NETS["normed"].batches(1, place)[0]
    recorded.step(x / 0, y)
    with pytest.raises(altmin.Diverged):
        steps([(x, y)] * (CHECK_EVERY - 1), recorded)
    assert CHECK_EVERY == 256


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("rule", ["adam", "sgd", "inner steps, l1, clipping", *MEMORIES])
def test_from_a_bad_step_on_nothing_changes_until_somebody_asks(rule: str, bad: float, place: str) -> None:
    ordinary, recorded = pair("normed", rule, place)
    data = NETS["normed"].batches(5, place)
    steps(data[:2], ordinary, recorded)
    before = [t.clone() for t in recorded.captured.tensors()[1:]]
    steps([(data[2][0].clone().fill_(bad), data[2][1]), data[2]], recorded)
    same(recorded.captured.tensors()[1:], before, 0.0)
    recorded.settle()
    steps(data[2:], ordinary, recorded)
    same(state(recorded), state(ordinary), 1e-7)


@pytest.mark.parametrize("rule", MEMORIES)
def test_a_memory_that_overflows_leaves_weights_memory_and_mu(rule: str, place: str) -> None:
    """Of inputs as large as these the loss is finite and the sum of their squares is not."""
    ordinary, recorded = pair("12 layers", rule, place)
    data = NETS["12 layers"].batches(4, place)
    steps(data[:2], ordinary, recorded)
    large = (1e160 * data[2][0], data[2][1])
    with pytest.raises(altmin.Diverged):
        ordinary.step(*large)
    recorded.step(*large)
    with pytest.raises(altmin.Diverged):
        recorded.synchronize()
    steps(data[2:], ordinary, recorded)
    same(state(recorded), state(ordinary), 1e-7)


def test_a_step_to_weights_that_are_not_finite_changes_nothing(place: str) -> None:
    ordinary, recorded = pair("normed", "adam", place, weights=altmin.LocalSGD(1e308))
    steps(NETS["normed"].batches(1, place), recorded)
    with pytest.raises(altmin.Diverged):
        steps(NETS["normed"].batches(1, place), ordinary)
    with pytest.raises(altmin.Diverged):
        recorded.synchronize()
    same(state(recorded), state(ordinary), 0.0)


# -- frozen and dead layers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["adam", "solved memory", "sums"])
def test_frozen_layers_stay_and_if_all_are_frozen_nothing_changes(rule: str, place: str) -> None:
    for frozen in ("3", ""):
        model, data = NETS["normed"].model(0, place), NETS["normed"].batches(3, place)
        model.get_submodule(frozen).requires_grad_(False)
        ordinary, other = (altmin.AltMin(copy.deepcopy(model), **RULES[rule](0)) for _ in range(2))
        recorded = Recorded(other, fuse=False)
        steps(data, ordinary, recorded)
        same(state(recorded), state(ordinary), 1e-7)
        assert torch.equal(recorded.model[3].weight, model[3].weight)


def test_below_a_layer_whose_units_are_all_dead_nothing_happens(place: str) -> None:
    model = mlp(*[6] * 8).to(place, F64)
    before = copy.deepcopy(model)
    with torch.no_grad():
        before[8].bias.fill_(-100.0)
        model[8].bias.fill_(-100.0)
    recorded = Recorded(altmin.AltMin(model, weights=altmin.LocalSGD(2**-4, momentum=0.0)), fuse=False)
    metrics = recorded.step(*NETS["normed"].batches(1, place)[0])
    assert metrics.residuals[:4] == metrics.movements[:4] == [0.0] * 4
    moved = [not torch.equal(p, q) for p, q in zip(recorded.model.parameters(), before.parameters(), strict=True)]
    assert moved[-1]
    assert not any(moved[:8])


# -- changes and refusals ---------------------------------------------------------------------------------------------

CHANGES = {
    "options of the rule": lambda am: [
        setattr(am.weights, k, 0.5) for k in ("eps", "damping", "rows") if hasattr(am.weights, k)
    ],
    "share": lambda am: setattr(am.codes, "share", 0.9),
    "penalty": lambda am: setattr(am.penalty, "maximum", 0.9),
    "elsewhere": lambda am: am.model.float().double(),
    "frozen": lambda am: am.model[0].weight.requires_grad_(False),
    "another layer": lambda am: am.model.__setitem__(3, copy.deepcopy(am.model[3])),
}


@pytest.mark.parametrize("rule", ["adam", "solved memory", "sums"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_part_of_the_recording_may_not_change(change: str, rule: str, place: str) -> None:
    recorded = pair("normed", rule, place)[1]
    data = NETS["normed"].batches(2, place)
    recorded.step(*data[0])
    torch.optim.lr_scheduler.StepLR(recorded.optimizer, 1)  # what a scheduler leaves in a group is no option
    recorded.step(*data[0])
    CHANGES[change](recorded.method)
    with pytest.raises(ValueError, match=r"part of the recording|has changed since it was cut"):
        recorded.step(*data[1])


def test_another_layer_is_seen_after_an_epoch_of_backprop(place: str) -> None:
    recorded, data = pair("normed", "backprop adam", place)[1], NETS["normed"].batches(2, place)
    recorded.step(*data[0])
    recorded.end_epoch()
    recorded.method.model[2] = nn.Tanh()
    with pytest.raises(ValueError, match="other options"):
        recorded.step(*data[1])


@pytest.mark.parametrize("kind", ["adam", "backprop adam", "ensemble"])
@pytest.mark.parametrize("layer, name", [(1, "p"), (2, "momentum"), (2, "eps"), (3, "negative_slope"), (5, "beta")])
def test_settings_that_change_after_recording_are_refused(layer: int, name: str, kind: str, place: str) -> None:
    layers = nn.Linear(5, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.LeakyReLU(0.1), nn.Linear(8, 3)
    model, loss = nn.Sequential(*layers).to(place, F64), nn.SmoothL1Loss()
    batch = NETS["regression"].batches(1, place)[0]
    make: Any = partial(altmin.methods.create, "adam", fused=True) if "backprop" in kind else altmin.AltMin
    method = make(model, loss=loss)
    recorded = Recorded(altmin.Ensemble([method]) if kind == "ensemble" else method, fuse=False)
    step = partial(recorded.step, *batch, **({"each": False} if kind == "ensemble" else {}))
    step()
    changed, before = (*model, loss)[layer], copy.deepcopy(model.state_dict())
    value = getattr(changed, name)
    setattr(changed, name, 0.7)
    with pytest.raises(ValueError, match="changed"):
        step()
    same(model.state_dict(), before, 0.0)
    setattr(changed, name, value)
    step()


def of_adagrad() -> altmin.LocalOptimizer:
    return altmin.LocalOptimizer(torch.optim.Adagrad, 0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: altmin.AltMin(m, weights=altmin.FittedMemory(steps=None)),
        lambda m: altmin.AltMin(m, weights=altmin.FittedMemory(rest=of_adagrad())),
        lambda m: altmin.AltMin(m, weights=of_adagrad()),
        lambda m: altmin.AltMin(nn.Sequential(m, nn.BatchNorm1d(3, momentum=None))),
        lambda m: altmin.AltMin(altmin.models.binary_mlp(7, (5, 5), 3)),
        lambda m: altmin.AltMin(m, codes=lambda *given: altmin.GradientCodes()(*given)),
        lambda m: altmin.methods.create("am-adam-offline", m),
        lambda m: Backprop(m, torch.optim.SGD(m.parameters(), 0.1)),
        lambda m: Recorded(altmin.AltMin(m)),
    ],
    ids=range(9),
)
def test_what_cannot_be_recorded_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="cannot be captured"):
        Recorded(make(mlp(5, 5)))
    with pytest.raises(ValueError, match="cannot be captured"):
        step_of([])


@pytest.mark.cuda
def test_a_step_that_asks_the_device_is_refused_and_leaves_no_trace() -> None:
    loss = lambda o, y: o.square().mean() * (2.0 if o.sum().item() > 0 else 1.0)  # noqa: E731
    am = altmin.AltMin(NETS["normed"].model(0, "cuda"), loss=loss)
    before = copy.deepcopy(am.model.state_dict())
    with pytest.raises(ValueError, match="captured"):
        Recorded(am, fuse=False).step(*NETS["normed"].batches(1, "cuda")[0])
    same(am.model.state_dict(), before, 0.0)


@pytest.mark.cuda
@pytest.mark.parametrize("rule", ["adam", "solved memory", "sums", "backprop adam"])
def test_recording_leaves_no_trace_and_replays_never_wait_for_the_device(rule: str) -> None:
    ordinary, recorded = pair("12 layers", rule, "cuda")
    first, *data = NETS["12 layers"].batches(20, "cuda")
    recorded.record(*first)
    same_models(recorded.method.model, ordinary.model, 0.0)
    steps(data[:10], recorded)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps(data[10:], recorded)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# -- ensembles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["adam", "solved memory", "sums"])
def test_a_member_of_a_recorded_ensemble_that_diverges_takes_no_further_part(rule: str, place: str) -> None:
    made = [altmin.Ensemble([build("normed", rule, i, place) for i in range(3)]) for _ in range(2)]
    ordinary, recorded = made[0], Recorded(made[1], fuse=False)
    for ensemble in made:
        with torch.no_grad():
            next(ensemble.member(1).parameters()).fill_(torch.inf)
    steps(NETS["normed"].batches(3, place), ordinary, recorded)
    assert recorded.diverged == ordinary.diverged == {1: 1}
    assert (len(recorded), bool(recorded)) == (3, True)
    same_models(ordinary.member(2), recorded.member(2), 1e-7)


def test_a_batch_for_each_member_and_one_for_all_are_other_recordings(place: str) -> None:
    """Targets that are numbers can be either."""
    made = [altmin.Ensemble([build("regression", "adam", i, place) for i in range(2)]) for _ in range(2)]
    ordinary, recorded = made[0], Recorded(made[1], fuse=False)
    (x, y), (u, v) = NETS["regression"].batches(2, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in (ordinary, recorded):
            method.step(torch.stack([x, u]), torch.stack([y, v]), each=True)
            method.step(torch.stack([u, x]), torch.stack([v, y]), each=True)
            method.step(x, y, each=False)
    assert recorded.others == 1
    same_models(ordinary.model, recorded.model)
