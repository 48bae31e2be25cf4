"""What an ensemble has of its own: views, ordinary methods, saved states, and divergence that stays with one member.

That its members take the steps of separate runs is in test_runners_matrix.py."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from runner_cases import F64, NETS, RULES, build, mlp, same, same_models, state
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import altmin
from altmin import Diverged, Ensemble
from altmin.training.config import RunConfig
from altmin.training.schedule import Schedule

MEMBERS = 3
LINEAR = RunConfig(epochs=1, schedule="linear")
SOME = ["adam", "sgd", "solved memory", "sums", "backprop adam", "backprop sgd"]


@torch.no_grad()
def advanced(ensemble: Ensemble, x: Tensor, y: Tensor) -> Tensor:
    """The losses of a step as a recording takes it: the result is not looked at."""
    loss = ensemble.advance_checked(x, y, ensemble.check(x, y, None), ensemble.kind(ensemble.count + 1))
    ensemble.count += 1
    return loss


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request: pytest.FixtureRequest) -> str:
    return request.param


def crew(rule: str = "adam", net: str = "normed", place: str = "cpu") -> list[Any]:
    return [build(net, rule, i, place) for i in range(MEMBERS)]


def own_batches(count: int, place: str = "cpu", net: str = "normed") -> list[tuple[Tensor, Tensor]]:
    """A mini-batch for each member, side by side."""
    data = NETS[net].batches(count * MEMBERS, place)
    parts = [data[i : i + MEMBERS] for i in range(0, len(data), MEMBERS)]
    return [(torch.stack([x for x, _ in part]), torch.stack([y for _, y in part])) for part in parts]


def part(batch: tuple[Tensor, Tensor], i: int) -> tuple[Tensor, Tensor]:
    return batch[0][i], batch[1][i]


def trained(rule: str, place: str, steps: int = 3) -> tuple[list[Any], Ensemble]:
    """Separate runs and an ensemble after the same steps."""
    alone, ensemble = crew(rule, place=place), Ensemble(crew(rule, place=place))
    for batch in own_batches(steps, place):
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        ensemble.step(*batch)
    return alone, ensemble


@pytest.mark.parametrize("rule", SOME)
def test_members_with_data_of_their_own_take_the_steps_of_separate_runs_and_go_on_alone(rule: str, place: str) -> None:
    alone, ensemble = trained(rule, place)
    others = ensemble.methods
    same([state(method) for method in others], [state(method) for method in alone], 1e-7)
    for batch in own_batches(5, place)[3:]:
        for i in range(MEMBERS):
            alone[i].step(*part(batch, i))
            others[i].step(*part(batch, i))
    same([state(method) for method in others], [state(method) for method in alone], 1e-6)


class Backwards(nn.Module):
    """Its parameters are registered in another order than they are used, one beside the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.branch, self.first = nn.Linear(6, 3), nn.Linear(6, 6), nn.Linear(5, 6)
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        code = torch.tanh(self.first(x))
        return self.last(torch.relu(code + self.scale * self.branch(code)))


@pytest.mark.parametrize("rule", ["adam", "sgd", "solved memory", "sums"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_members_train_parameters_in_whatever_order_and_type(rule: str, dtype: torch.dtype, place: str) -> None:
    torch.manual_seed(0)
    nets = [Backwards().to(place, dtype) for _ in range(2)]
    alone, members = ([altmin.AltMin(copy.deepcopy(net), **RULES[rule](i)) for i, net in enumerate(nets)] for _ in "ab")
    ensemble = Ensemble(members)
    for x, y in NETS["normed"].batches(3, place):
        for method in (*alone, ensemble):
            method.step(x.to(dtype), y)
    for i, (method, before) in enumerate(zip(alone, nets, strict=True)):
        same_models(ensemble.member(i), method.model, 1e-8 if dtype == F64 else 1e-4)
        pairs = zip(ensemble.member(i).parameters(), before.parameters(), strict=True)
        assert not any(torch.equal(p, q) for p, q in pairs)


def test_a_member_is_an_ordinary_module_whose_parameters_are_views() -> None:
    made = crew(net="12 layers")
    given = [method.model for method in made]
    ensemble = Ensemble(made)
    (x, y), *_ = NETS["12 layers"].batches(1)
    ensemble.step(x, y)
    stacked = {t.untyped_storage().data_ptr() for t in ensemble.tensors()}
    for i, model in enumerate(given):
        assert ensemble.member(i) is model
        assert {p.untyped_storage().data_ptr() for p in model.parameters()} <= stacked
    with torch.no_grad():
        given[1][-1].weight.zero_()
        given[1][-1].bias.zero_()
    assert float(ensemble.step(x, y).loss[1]) == pytest.approx(torch.tensor(3.0).log().item())


def test_mu_and_memories_of_the_methods_are_copies() -> None:
    ensemble = trained("sums", "cpu")[1]
    left: Any = ensemble.methods[0]
    mu, before = left.penalty.value, copy.deepcopy(left.updates.states)
    ensemble.step(*own_batches(1)[0])
    assert left.penalty.value == mu
    same(left.updates.states, before, 0.0)
    assert ensemble.methods[0].penalty.value > mu  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", SOME)
def test_methods_that_have_learned_alone_come_into_an_ensemble_with_their_state(rule: str, place: str) -> None:
    alone, other = crew(rule, place=place), crew(rule, place=place)
    data = own_batches(5, place)
    for made in (alone, other):
        for batch in data[:3]:
            for i, method in enumerate(made):
                method.step(*part(batch, i))
    ensemble = Ensemble(other)
    for batch in data[3:]:
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        ensemble.step(*batch)
    same([state(method) for method in ensemble.methods], [state(method) for method in alone], 1e-6)


@pytest.mark.parametrize("rule", ["adam", "solved memory", "sums", "backprop adam"])
def test_a_saved_ensemble_goes_on_as_one_that_was_not(rule: str, place: str) -> None:
    ensemble = trained(rule, place)[1]
    for group in ensemble.optimizer.param_groups:
        group["lr"] *= 0.5
    weights, kept = copy.deepcopy((ensemble.model.state_dict(), ensemble.state_dict()))
    other = Ensemble(crew(rule, place=place))
    other.model.load_state_dict(weights)
    other.load_state_dict(kept)
    for batch in own_batches(2, place):
        assert torch.equal(ensemble.step(*batch).loss, other.step(*batch).loss)
    same_models(ensemble.model, other.model, 0.0)
    assert other.steps == 5
    with pytest.raises(ValueError):
        Ensemble(crew(rule, place=place)[:2]).load_state_dict(kept)


def test_an_ensemble_whose_members_were_moved_elsewhere_says_so() -> None:
    batch = NETS["normed"].batches(1)[0]
    copied, moved, taken = copy.deepcopy(Ensemble(crew())), Ensemble(crew()), Ensemble(crew())
    moved.model.float().double()
    Ensemble(taken.methods)
    for ensemble in (copied, moved, taken):
        with pytest.raises(ValueError, match="no longer lie"):
            ensemble.step(*batch)
    again = Ensemble(copied.methods)
    before = [p.clone() for p in again.model.parameters()]
    again.step(*batch)
    assert not any(map(torch.equal, before, again.model.parameters()))


@pytest.mark.parametrize("method", ["am-adam", "sgd"])
def test_options_of_the_members_losses_may_not_change(method: str) -> None:
    losses, batch = [nn.CrossEntropyLoss() for _ in range(2)], NETS["normed"].batches(1)[0]
    ensemble = Ensemble([altmin.methods.create(method, NETS["normed"].model(), loss=loss) for loss in losses])
    ensemble.step(*batch)
    losses[1].label_smoothing = 0.5
    with pytest.raises(ValueError, match="losses"):
        ensemble.step(*batch)


def test_layers_follow_the_mode_into_which_the_members_are_put() -> None:
    alone, ensemble = crew(), Ensemble(crew())
    for n, (x, y) in enumerate(NETS["normed"].batches(4)):
        for method in alone:
            method.model.train(n != 2)
            method.step(x, y)
        ensemble.model.train(n != 2)
        ensemble.step(x, y)
    for i, method in enumerate(alone):
        same_models(ensemble.member(i), method.model, 1e-7)


@pytest.mark.parametrize("rule", ["adam", "backprop adam"])
def test_every_member_draws_its_own_dropout(rule: str) -> None:
    """Members that are the same but for their draws: with p = 0 they stay so, else they part."""
    x, y = torch.ones(40, 5, dtype=F64), torch.zeros(40, dtype=torch.int64)
    for p, alike in ((0.0, True), (0.5, False)):
        made = []
        for _ in range(2):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Dropout(p), nn.Linear(5, 6), nn.ReLU(), nn.Dropout(p), nn.Linear(6, 3)).double()
            made.append(altmin.AltMin(net) if rule == "adam" else altmin.methods.create("adam", net))
        losses = Ensemble(made).step(x, y).loss.tolist()
        assert (losses[0] == losses[1]) is alike
        assert abs(losses[1] - losses[0]) < 0.5, "the masks have the size that keeps means"


def test_a_schedule_moves_every_members_own_rate() -> None:
    alone, ensemble = crew("sgd"), Ensemble(crew("sgd"))
    rates = [method.optimizer.param_groups[0]["lr"] for method in alone]
    plans = [Schedule(LINEAR, method.optimizer, 5) for method in (*alone, ensemble)]
    for n, (x, y) in enumerate(NETS["normed"].batches(4), 1):
        for method, plan in zip((*alone, ensemble), plans, strict=True):
            method.step(x, y)
            plan.move(n, 0)
        expected = pytest.approx([lr * (1 - n / 5) for lr in rates])
        assert [m.optimizer.param_groups[0]["lr"] for m in ensemble.methods] == expected  # type: ignore[union-attr]
    for i, method in enumerate(alone):
        same_models(ensemble.member(i), method.model, 1e-7)


# -- divergence -------------------------------------------------------------------------------------------------------


def spoil(model: nn.Module) -> None:
    """Sets weights that are finite, and with which no step is."""
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1e200)


@pytest.mark.parametrize("rule", SOME)
@pytest.mark.parametrize("by", ["weights", "data"])
def test_a_member_that_diverges_stops_and_the_others_do_not_notice(rule: str, by: str, place: str) -> None:
    alone, ensemble, other = (
        crew(rule, place=place),
        Ensemble(crew(rule, place=place)),
        Ensemble(crew(rule, place=place)),
    )
    for n, batch in enumerate(own_batches(5, place)):
        if n == 2 and by == "weights":
            spoil(ensemble.member(1))
            spoil(other.member(1))
        if n == 2 and by == "data":
            batch[0][1, 0, 0] = torch.nan
        before = copy.deepcopy(ensemble.member(1).state_dict())
        for i in (0, 2):
            alone[i].step(*part(batch, i))
        loss = ensemble.step(*batch).loss
        assert torch.equal(loss.nan_to_num(), advanced(other, *batch).nan_to_num())
        assert loss[1].isfinite() == (n < 2) or n == 2
        if n >= 2:
            same(dict(ensemble.member(1).state_dict()), before, 0.0)
    assert ensemble.diverged == other.diverged == {1: 3}
    assert ensemble.alive.tolist() == [True, False, True]
    for i in (0, 2):
        same_models(ensemble.member(i), alone[i].model, 1e-7)
    again = Ensemble(crew(rule, place=place))
    again.load_state_dict(ensemble.state_dict())
    assert again.diverged == {1: 3}


@pytest.mark.parametrize("rule", ["adam", "sgd", "backprop adam", "backprop sgd"])
def test_a_member_whose_new_weights_are_not_finite_keeps_the_old_ones(rule: str) -> None:
    made = crew(rule, "12 layers")
    made[1].optimizer.param_groups[0]["lr"] = 1e308
    ensemble = Ensemble(made)
    before = copy.deepcopy(ensemble.member(1).state_dict())
    x, y = NETS["12 layers"].batches(1)[0]
    ensemble.step(1e4 * x, y)
    assert ensemble.diverged == {1: 1}
    same(dict(ensemble.member(1).state_dict()), before, 0.0)


def test_a_gradient_that_is_not_finite_stays_with_its_member_even_if_the_loss_is() -> None:
    """The square root of zero has no slope: here that of every sample with the label 2, which one member has."""

    def loss(o: Tensor, y: Tensor) -> Tensor:
        kink = ((y == 2).unsqueeze(1) * o * 0 + (y != 2).unsqueeze(1)).sqrt()
        return nn.functional.cross_entropy(o, y) + kink.mean()

    made = [build("12 layers", "backprop adam", i, loss=loss) for i in range(MEMBERS)]
    for method in made:
        method.model[2:].requires_grad_(False)  # only the first layer is trained: nothing else could tell
    ensemble = Ensemble(made)
    x, y = own_batches(1, net="12 layers")[0]
    y = y.clamp_max(1)
    y[1, 0] = 2
    ensemble.step(x, y)
    assert ensemble.diverged == {1: 1}


def test_a_member_whose_memory_overflows_keeps_it() -> None:
    """Of inputs as large as these the loss is finite; the sum of their squares is not."""
    made = [altmin.AltMin(mlp(4).double(), weights=altmin.FittedMemory(sweeps=1, damping=0.0, rate=1.0)) for _ in "ab"]
    ensemble = Ensemble(made)
    data = [(x[:2], y[:2]) for x, y in own_batches(3)]
    ensemble.step(*data[0])
    before = copy.deepcopy(ensemble.methods[1].updates.states)  # type: ignore[attr-defined]
    data[1][0][1] *= 1e160
    ensemble.step(*data[1])
    assert ensemble.diverged == {1: 2}
    same(ensemble.methods[1].updates.states, before, 0.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", SOME)
def test_if_all_diverge_or_the_batch_is_not_finite_step_says_so_and_changes_nothing(rule: str) -> None:
    ensemble = Ensemble(crew(rule))
    before = [t.clone() for t in ensemble.tensors()]
    x, y = NETS["normed"].batches(1)[0]
    with pytest.raises(ValueError, match="NaN or infinite"):
        ensemble.step(x * torch.nan, y)
    assert all(map(torch.equal, before, ensemble.tensors()))
    weights = [p.clone() for p in ensemble.model.parameters()]
    with pytest.raises(Diverged):
        ensemble.step(torch.full_like(x, 1e308), y)
    assert all(map(torch.equal, weights, ensemble.model.parameters()))
    assert ensemble.diverged == {0: 1, 1: 1, 2: 1}


# -- waiting for the device -------------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """Notes operations that would make the processor wait for a GPU: numbers asked for, or Python's handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(word in str(func) for word in ("_local_scalar_dense", "nonzero", "lift_fresh", "aten.equal")):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def without_waiting(place: str) -> Iterator[None]:
    if place == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return
    with Watch() as watch:
        yield
    assert watch.seen == []


@pytest.mark.parametrize(
    "net, rule", [*(("normed", rule) for rule in SOME), ("elman", "adam"), ("convolutions", "adam")]
)
def test_advance_asks_for_no_number_and_hands_over_none(net: str, rule: str, place: str) -> None:
    ensemble = Ensemble(crew(rule, net, place))
    first, second, third = NETS[net].batches(3, place)
    advanced(ensemble, *first)  # constants are made on the first call
    with without_waiting(place):
        advanced(ensemble, *second)
        advanced(ensemble, *third)
        ensemble.end_epoch()
        Schedule(LINEAR, ensemble.optimizer, 5).move(1, 0)
    with Watch() as watch:
        assert bool(ensemble.alive.any() & torch.tensor([True], device=place))
    assert "aten._local_scalar_dense.default" in watch.seen, "it would be noticed"


@pytest.mark.cuda
@pytest.mark.parametrize("rule", SOME)
def test_step_waits_for_the_gpu_once(rule: str) -> None:
    ensemble, (first, second) = Ensemble(crew(rule, place="cuda")), NETS["normed"].batches(2, "cuda")
    ensemble.step(*first)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ensemble.step(*second)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([w for w in seen if "synchroniz" in str(w.message)]) == 1


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("net", ["normed", "convolutions", "elman"])
def test_no_operation_is_run_member_by_member(net: str) -> None:
    for rule in SOME:
        Ensemble(crew(rule, net)).step(*NETS[net].batches(1)[0])
