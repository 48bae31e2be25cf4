"""On a GPU `fit` records steps by itself where that changes nothing but the time. On a CPU a stand-in runs the step
instead of replaying it."""

import copy

import pytest
import torch
from capture_cases import stand_in
from torch import nn

import altmin
from altmin.core.trainer import AltMin
from altmin.runners.recorded import Recorded, RecordedIfPossible, recorded
from altmin.training import EachBatch, Progress, fit


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request, monkeypatch):
    if request.param == "cpu":
        stand_in(monkeypatch)
        monkeypatch.setattr("altmin.runners.recorded.is_on_gpu", lambda model: True)
    return request.param


class Own(nn.Module):
    """A network of someone's own; AltMin traces it."""

    def __init__(self, at: float = 1.0):
        super().__init__()
        self.first, self.last, self.at = nn.Linear(6, 8), nn.Linear(8, 3), at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)) * self.at)


def own_loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, y)


def net(dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def samples(n: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator)


def hooked() -> nn.Sequential:
    model = net()
    model[0].register_forward_hook(lambda module, args, output: None)
    return model


def test_on_a_cpu_nothing_is_recorded(monkeypatch) -> None:
    monkeypatch.undo()
    method = altmin.AltMin(net())
    assert recorded(method, None) is method
    with pytest.raises(ValueError, match="the model is on a CPU; steps of AltMin and of ensembles are recorded there"):
        fit(altmin.methods.create("adam", net()), samples(), epochs=1, batch_size=10, record=True)


@pytest.mark.parametrize(
    "make, safe",
    [
        (lambda device: AltMin(net().to(device)), True),
        (lambda device: AltMin(Own().to(device)), True),
        (lambda device: altmin.methods.create("adam", net().to(device)), True),
        (lambda device: altmin.methods.create("adam", Own().to(device)), False),
        (lambda device: AltMin(net().to(device), loss=own_loss), False),
        (lambda device: AltMin(net().to(device), loss=nn.functional.cross_entropy), True),
        (lambda device: AltMin(hooked().to(device)), False),
        (lambda device: AltMin(altmin.models.binary_mlp(6, (5, 5), 3).to(device)), False),
        (lambda device: Recorded(AltMin(net().to(device))), False),
    ],
)
def test_steps_are_recorded_where_nobody_elses_code_runs(make, safe, device) -> None:
    method = make(device)
    assert isinstance(recorded(method, None), RecordedIfPossible) is safe
    assert recorded(method, False) is method


@pytest.mark.parametrize("name", ["am-adam", "am-mem", "adam"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_run_with_recorded_steps_is_the_run(name, dropout, device) -> None:
    """With the same random numbers; the last batch of an epoch is smaller."""
    torch.manual_seed(0)
    model = net(dropout).to(device)
    runs = []
    for record in (False, None):
        mine = copy.deepcopy(model)
        method = altmin.methods.create(name, mine)
        torch.manual_seed(1)
        history = fit(method, samples(), samples(), epochs=3, batch_size=16, seed=2, record=record)
        runs.append((mine, history, method))
    (a, plain, _), (b, other, method) = runs
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    for row, same in zip(plain.epochs, other.epochs, strict=True):
        assert row["train_loss"] == pytest.approx(same["train_loss"], rel=1e-4)
    method.step(*(t[:16].to(device) for t in samples()))  # the method goes on by itself


def test_a_step_whose_capture_fails_goes_on_as_it_is(monkeypatch, device) -> None:
    def fails(*_: object) -> None:
        raise ValueError("this step cannot be captured: it waits for the device")

    monkeypatch.setattr("altmin.runners.recorded.Recorded._capture", fails)
    method = altmin.AltMin(net().to(device))
    history = fit(method, samples(), epochs=2, batch_size=10)
    assert history.epochs[1]["train_loss"] < history.epochs[0]["train_loss"]


def test_a_step_that_waits_for_the_device_is_not_recorded_and_others_are_later(device) -> None:
    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.abs().sum() > 0)

    Waits.__module__ = "torch.of_this_test"
    model = nn.Sequential(nn.Linear(6, 8), Waits(), nn.Linear(8, 3)).to(device)
    history = fit(altmin.AltMin(model), samples(), epochs=2, batch_size=10)  # a stand-in waits for nothing
    assert len(history.epochs) == 2
    steps = recorded(altmin.AltMin(net(0.3).to(device)), None)
    x, y = (t[:16].to(device) for t in samples())
    for _ in range(3):
        steps.step(x, y)
    assert steps.programs is not None


def test_a_model_that_is_changed_between_epochs_is_captured_again(device) -> None:
    def changes(progress) -> None:
        progress.model[2].p = 0.0

    torch.manual_seed(0)
    model = net(0.5).to(device)
    weights = []
    for record in (False, None):
        mine = copy.deepcopy(model)
        torch.manual_seed(1)
        fit(altmin.AltMin(mine), samples(48), epochs=3, batch_size=16, callbacks=changes, record=record)
        weights.append(mine[0].weight)
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_a_change_after_the_end_of_an_epoch_is_seen_by_the_next_step(device) -> None:
    """Callbacks run after `end_epoch`."""
    model = net(0.5).to(device)
    steps = recorded(altmin.AltMin(model), None)
    x, y = (t[:16].to(device) for t in samples())
    steps.step(x, y)
    first = steps.programs
    steps.end_epoch()
    steps.step(x, y)
    assert steps.programs is first
    steps.end_epoch()
    model[2].p = 0.0
    steps.step(x, y)
    assert steps.programs is not first


@pytest.mark.parametrize("owner, option", [("codes", "share"), ("penalty", "increment")])
def test_options_of_codes_and_penalty_that_change_during_a_run_are_followed(owner, option, device) -> None:
    torch.manual_seed(0)
    model = net().double().to(device)
    x, y = samples(48)

    def trained(record: bool | None) -> list[torch.Tensor]:
        am = AltMin(copy.deepcopy(model), weights=altmin.LocalAdam(2**-7))

        def changes(progress: Progress) -> None:
            if progress.batch == 4:
                setattr(getattr(am, owner), option, 0.9)

        fit(am, (x.double(), y), epochs=2, batch_size=16, record=record, callbacks=EachBatch(changes))
        return [*am.model.parameters(), torch.tensor(am.penalty.value)]

    torch.testing.assert_close(trained(None), trained(False), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("owner, option", [("codes", "share"), ("penalty", "maximum")])
def test_a_recorded_method_refuses_other_options_of_codes_and_penalty(owner, option, device) -> None:
    steps = Recorded(AltMin(net().to(device)), fuse=False)
    x, y = (t[:16].to(device) for t in samples())
    steps.step(x, y)
    steps.step(x, y)
    setattr(getattr(steps.method, owner), option, 0.9)
    with pytest.raises(ValueError, match="options of the code solver and the penalty are part of the capture"):
        steps.step(x, y)


def test_a_run_with_recorded_steps_goes_on_from_its_checkpoint_bit_by_bit(tmp_path, device) -> None:
    """Stopped before the smaller last batch of an epoch, which comes first when it goes on."""

    def stops(progress: Progress) -> None:
        if progress.batch == 7:
            raise ZeroDivisionError

    torch.manual_seed(0)
    model = net(0.3).to(device)
    once, twice = copy.deepcopy(model), copy.deepcopy(model)
    torch.manual_seed(1)
    fit(altmin.AltMin(once), samples(50), epochs=4, batch_size=16)
    kept = {"epochs": 4, "batch_size": 16, "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    torch.manual_seed(1)
    with pytest.raises(ZeroDivisionError):
        fit(altmin.AltMin(twice), samples(50), **kept, callbacks=EachBatch(stops))
    fit(altmin.AltMin(twice), samples(50), **kept, resume=True)
    for p, q in zip(once.parameters(), twice.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_run_that_diverges_says_so(device) -> None:
    method = altmin.methods.create("adam", net().to(device), lr=1e30)
    with pytest.raises(altmin.Diverged):
        fit(method, samples(), epochs=5, batch_size=10)


def test_shapes_take_turns_and_weights_take_the_ordinary_step(device) -> None:
    x, y = (t.to(device) for t in samples())
    torch.manual_seed(0)
    model = net().to(device)
    plain = altmin.AltMin(copy.deepcopy(model))
    steps = recorded(altmin.AltMin(model), None, rows=16)
    for i, (first, end, weight) in enumerate(
        [(0, 8, 0), (16, 32, 0), (32, 40, 0), (40, 50, 1), (0, 16, 0), (0, 16, 1)]
    ):
        how = {"sample_weight": torch.arange(1.0, end - first + 1, device=device)} if weight else {}
        losses = [float(each.step(x[first:end], y[first:end], **how).loss) for each in (steps, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        assert steps.programs is None or steps.x.shape == (16, 6)
        assert (steps.programs is not None) == (i > 0), "batches of 16 are captured"
    for p, q in zip(steps.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["am-adam", "adam"])
@pytest.mark.parametrize("what", ["frozen", "decay"])
def test_a_method_that_is_changed_during_a_run_is_captured_again(name, what, device) -> None:
    """As callbacks do that freeze layers or change an optimizer's options."""

    def changes(progress: Progress) -> None:
        if progress.batch != 4:
            return
        if what == "frozen":
            progress.model[0].requires_grad_(False)
        else:
            progress.method.optimizer.param_groups[0]["weight_decay"] = 0.1

    torch.manual_seed(0)
    model, ends = net().to(device), []
    for record in (False, None):
        mine = copy.deepcopy(model)
        settings = {"epochs": 3, "batch_size": 16, "callbacks": EachBatch(changes), "record": record}
        fit(altmin.methods.create(name, mine), samples(48), **settings)
        ends.append([p.detach() for p in mine.parameters()])
    for p, q in zip(*ends, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
