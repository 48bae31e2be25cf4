"""On a GPU `fit` records steps by itself where that changes nothing but the time."""

import copy

import pytest
import torch
from torch import nn

import altmin
from altmin.core.trainer import AltMin
from altmin.runners.recorded import Recorded, RecordedIfPossible, recorded
from altmin.training import fit


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


def test_on_a_cpu_nothing_is_recorded() -> None:
    method = altmin.AltMin(net())
    assert recorded(method, None) is method
    with pytest.raises(ValueError, match="CUDA device"):
        fit(altmin.AltMin(net()), samples(), epochs=1, batch_size=10, record=True)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "make, safe",
    [
        (lambda: AltMin(net().cuda()), True),
        (lambda: AltMin(Own().cuda()), True),
        (lambda: altmin.methods.create("adam", net().cuda()), True),
        (lambda: altmin.methods.create("adam", Own().cuda()), False),
        (lambda: AltMin(net().cuda(), loss=own_loss), False),
        (lambda: AltMin(net().cuda(), loss=nn.functional.cross_entropy), True),
        (lambda: AltMin(hooked().cuda()), False),
        (lambda: AltMin(altmin.models.binary_mlp(6, (5, 5), 3).cuda()), False),
        (lambda: Recorded(AltMin(net().cuda())), False),
    ],
)
def test_steps_are_recorded_where_nobody_elses_code_runs(make, safe) -> None:
    method = make()
    assert isinstance(recorded(method, None), RecordedIfPossible) is safe
    assert recorded(method, False) is method


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["am-adam", "am-mem", "adam"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_run_with_recorded_steps_is_the_run(name, dropout) -> None:
    """With the same random numbers; the last batch of an epoch is smaller."""
    torch.manual_seed(0)
    model = net(dropout).cuda()
    runs = []
    for record in (False, None):
        mine = copy.deepcopy(model)
        method = altmin.methods.create(name, mine)
        torch.manual_seed(1)
        torch.cuda.manual_seed(1)
        history = fit(method, samples(), samples(), epochs=3, batch_size=16, seed=2, record=record)
        runs.append((mine, history, method))
    (a, plain, _), (b, other, method) = runs
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    for row, same in zip(plain.epochs, other.epochs, strict=True):
        assert row["train_loss"] == pytest.approx(same["train_loss"], rel=1e-4)
    method.step(*(t[:16].cuda() for t in samples()))  # the method goes on by itself


@pytest.mark.cuda
def test_a_step_whose_capture_fails_goes_on_as_it_is(monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("this step cannot be captured: it waits for the device")

    monkeypatch.setattr("altmin.runners.recorded.Recorded._capture", fails)
    method = altmin.AltMin(net().cuda())
    history = fit(method, samples(), epochs=2, batch_size=10)
    assert history.epochs[1]["train_loss"] < history.epochs[0]["train_loss"]


@pytest.mark.cuda
def test_a_step_that_waits_for_the_device_is_not_recorded_and_others_are_later() -> None:
    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.abs().sum() > 0)

    Waits.__module__ = "torch.of_this_test"
    model = nn.Sequential(nn.Linear(6, 8), Waits(), nn.Linear(8, 3)).cuda()
    history = fit(altmin.AltMin(model), samples(), epochs=2, batch_size=10)
    assert len(history.epochs) == 2
    steps = recorded(altmin.AltMin(net(0.3).cuda()), None)
    x, y = (t[:16].cuda() for t in samples())
    for _ in range(3):
        steps.step(x, y)
    assert steps.programs is not None


@pytest.mark.cuda
def test_a_model_that_is_changed_between_epochs_is_captured_again() -> None:
    def changes(progress) -> None:
        progress.model[2].p = 0.0

    torch.manual_seed(0)
    model = net(0.5).cuda()
    weights = []
    for record in (False, None):
        mine = copy.deepcopy(model)
        torch.cuda.manual_seed(1)
        fit(altmin.AltMin(mine), samples(48), epochs=3, batch_size=16, callbacks=changes, record=record)
        weights.append(mine[0].weight)
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
def test_a_run_with_recorded_steps_goes_on_from_its_checkpoint(tmp_path) -> None:
    torch.manual_seed(0)
    model, ends = net(0.3).cuda(), []
    for parts in ([4], [2, 4]):
        mine = copy.deepcopy(model)
        torch.cuda.manual_seed(1)
        for i, epochs in enumerate(parts):
            kept = {"checkpoint": tmp_path / f"{len(parts)}.pt", "resume": i > 0}
            fit(altmin.AltMin(mine), samples(48), epochs=epochs, batch_size=16, **kept)
        ends.append(mine[0].weight)
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
def test_a_run_that_diverges_says_so() -> None:
    method = altmin.methods.create("adam", net().cuda(), lr=1e30)
    with pytest.raises(altmin.Diverged):
        fit(method, samples(), epochs=5, batch_size=10)
