"""On a GPU `fit` records steps by itself where that changes nothing but the time.

It uses `Recorded(quiet=True)` for it, which is tried on a CPU too."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import altmin
from altmin.core.trainer import AltMin
from altmin.runners.recorded import Recorded, recorded, runs_known_code
from altmin.training import EachBatch, Progress, fit

F64 = torch.float64


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said, but by cuBLAS when a process first calls it
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS")
        warnings.filterwarnings(
            "ignore", ".torch.jit.script", DeprecationWarning
        )  # at torch's first forward derivative
        yield request.param


def by_itself(method: Any, rows: int | None = None) -> Any:
    """What `fit` makes of a method on a GPU."""
    return Recorded(method, fuse=False, rows=rows, quiet=True)


class Own(nn.Module):
    """A network of someone's own; AltMin traces it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


def own_loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, y)


def net(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3)).double()


def samples(n: int = 50, place: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, 6, generator=generator, dtype=F64), torch.randint(3, (n,), generator=generator)
    return x.to(place), y.to(place)


def hooked() -> nn.Sequential:
    model = net()
    model[0].register_forward_hook(lambda module, args, output: None)
    return model


@pytest.mark.parametrize(
    "make, known",
    [
        (lambda: AltMin(net()), True),
        (lambda: AltMin(Own()), True),
        (lambda: altmin.methods.create("adam", net(), fused=True), True),
        (lambda: altmin.methods.create("adam", Own(), fused=True), False),
        (lambda: AltMin(net(), loss=own_loss), False),
        (lambda: AltMin(net(), loss=nn.functional.cross_entropy), True),
        (lambda: AltMin(hooked()), False),
        (lambda: AltMin(altmin.models.binary_mlp(6, (5, 5), 3)), False),
        (lambda: Recorded(AltMin(net())), False),
    ],
)
def test_steps_are_recorded_on_a_gpu_where_nobody_elses_code_runs(make: Any, known: bool) -> None:
    method = make()
    assert runs_known_code(method) is known
    assert recorded(method, None) is recorded(method, False) is method, "not on a CPU"


def dropout(progress: Progress) -> None:
    progress.model[2].p = 0.0


def at_batch_4(change: Any) -> EachBatch:
    return EachBatch(lambda progress: change(progress) if progress.batch == 4 else None)


CHANGES = {
    "dropout, between epochs": dropout,
    "frozen": at_batch_4(lambda at: at.model[0].requires_grad_(False) and None),
    "decay": at_batch_4(lambda at: at.method.optimizer.param_groups[0].update(weight_decay=0.1)),
    "share": at_batch_4(lambda at: setattr(at.method.codes, "share", 0.9)),
    "increment": at_batch_4(lambda at: setattr(at.method.penalty, "increment", 0.9)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_callbacks_change_during_a_run_is_recorded_again(change: str, place: str) -> None:
    ends = []
    for wrap in (lambda method: method, by_itself):
        method = AltMin(net(0.5).to(place), weights=altmin.LocalAdam(2**-9))
        steps = wrap(method)
        torch.manual_seed(1)
        fit(steps, samples(48), epochs=3, batch_size=16, callbacks=CHANGES[change], record=False)
        ends.append([*method.model.parameters(), torch.tensor(method.penalty.value)])
    assert steps.others <= 2, "one at most after the change"
    torch.testing.assert_close(*ends, rtol=1e-7, atol=1e-7)


def test_a_run_with_recorded_steps_goes_on_from_its_checkpoint_bit_by_bit(tmp_path: Path, place: str) -> None:
    """Stopped before the smaller last batch of an epoch, which comes first when it goes on."""

    def stops(progress: Progress) -> None:
        if progress.batch == 7:
            raise ZeroDivisionError

    def run(method: AltMin, **settings: Any) -> None:
        fit(by_itself(method, 16), samples(50), epochs=4, batch_size=16, record=False, **settings)

    once, twice = (AltMin(net(0.3).to(place)) for _ in range(2))
    torch.manual_seed(1)
    run(once)
    kept = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    torch.manual_seed(1)
    with pytest.raises(ZeroDivisionError):
        run(twice, **kept, callbacks=EachBatch(stops))
    run(twice, **kept, resume=True)
    assert all(map(torch.equal, once.model.parameters(), twice.model.parameters()))


def test_a_step_that_cannot_be_recorded_goes_on_as_it_is_and_others_are_recorded_later(place: str) -> None:
    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.abs().sum() > 0)

    model = nn.Sequential(nn.Linear(6, 8), Waits(), nn.Linear(8, 3)).to(place, F64)
    steps = by_itself(AltMin(model))
    history = fit(steps, samples(), epochs=2, batch_size=10, record=False)
    assert history.epochs[1]["train_loss"] < history.epochs[0]["train_loss"]
    assert steps.possible == (place == "cpu")
    later = by_itself(AltMin(net(0.3).to(place)))
    for _ in range(3):
        later.step(*samples(16, place))
    assert later.programs


@pytest.mark.cuda
def test_on_a_gpu_fit_records_by_itself_and_compiles_if_told() -> None:
    assert isinstance(recorded(AltMin(net().cuda()), None), Recorded)
    ends = []
    for record in (False, None, True):
        method = AltMin(net().cuda(), weights=altmin.LocalAdam(2**-9))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(method, samples(), epochs=3, batch_size=16, seed=2, record=record)
        ends.append([*method.model.parameters()])
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-7, atol=1e-7)
