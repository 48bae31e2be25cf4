"""The same promises on a GPU. The losses are read there only now and then, which must not show."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import Recorder, Stop, numbered, outcome, stop_at
from loop_cases import samples as problem
from test_training_resumed import SETTINGS, learner
from torch import nn

from altmin import methods
from altmin.cli import run
from altmin.common.errors import Diverged
from altmin.runners import Recorded
from altmin.training import EMA, checkpoint, epoch_order, fit
from reproduction.__main__ import run as run_reproduction

pytestmark = pytest.mark.cuda


def on_gpu(seed: int = 0) -> methods.Method:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    return methods.create("adam", model.cuda())


def bits(method: methods.Method, history: Any) -> Any:
    method.model.cpu()
    return outcome(method, history)


@pytest.mark.parametrize("moved", [False, True])
def test_a_run_on_the_gpu_resumes_bit_by_bit(moved: bool, tmp_path: Path) -> None:
    """Wherever the samples lie."""
    train, test = problem(90), problem(40, 1)
    if moved:
        train, test = (train[0].cuda(), train[1].cuda()), (test[0].cuda(), test[1].cuda())
    whole = on_gpu()
    expected = bits(whole, fit(whole, train, test, **SETTINGS))
    kept = {**SETTINGS, "checkpoint": tmp_path / "run", "checkpoint_every": 2}
    with pytest.raises(Stop):
        fit(on_gpu(), train, test, **kept, callbacks=stop_at(8))
    second = on_gpu(seed=1)
    assert bits(second, fit(second, train, test, **kept, resume=True)) == expected
    assert checkpoint.load(tmp_path / "run", "cuda")["parts"]["model"]["0.weight"].is_cuda


def test_a_checkpoint_from_the_gpu_can_go_on_without_one(tmp_path: Path) -> None:
    kept = {**SETTINGS, "checkpoint": tmp_path / "run"}
    with pytest.raises(Stop):
        fit(on_gpu(), problem(90), problem(40, 1), **kept, callbacks=stop_at(12))
    method = learner()
    history = fit(method, problem(90), problem(40, 1), **kept, resume=True)
    assert [row["epoch"] for row in history.epochs] == [1, 2, 3]


def test_a_loss_read_late_still_tells_its_batch() -> None:
    losses = [1.0] * 7 + [float("nan")] + [1.0] * 100
    with pytest.raises(Diverged, match="the loss in epoch 1, batch 8 of 80"):
        fit(Recorder(nn.Linear(1, 2).cuda(), losses), numbered(80), epochs=1, batch_size=1)


def test_the_commands_run_on_the_gpu(tmp_path: Path) -> None:
    common = ["--device", "cuda", "--json", str(tmp_path / "out.json")]
    assert run(["train", "--method", "am-adam", "--limit", "2000", *common]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["environment"]["gpu"] == torch.cuda.get_device_name()
    assert found["epochs"][0]["test_accuracy"] > 0.5
    assert run_reproduction(["speed", "--model", "mlp-2x100,lenet5", "--seconds", "4", *common]) == 0


def options(name: str) -> dict[str, Any]:
    fused = {"fused": True} if name in ("adam", "sgd") else {}
    return {"lr": 0.01, "clip_norm": 0.05, "weight_decay": 0.1, "decay_biases": False, **fused}


def pair(name: str) -> list[Any]:
    """The same method twice: as it is, and recorded."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).cuda()
        made.append(methods.create(name, model, **options(name)))
    return [made[0], Recorded(made[1])]


@pytest.mark.parametrize("name", ["adam", "sgd", "am-adam", "am-sgd"])
def test_recorded_steps_clip_and_decay_as_ordinary_ones_and_follow_torchs_schedulers(name: str) -> None:
    def make(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

    plain, recorded = pair(name)
    settings: dict[str, Any] = {"epochs": 4, "batch_size": 30, "scheduler": make}
    for method in (plain, recorded):
        fit(method, problem(90), problem(40, 1), callbacks=EMA(0.5), **settings)
        fit(method, problem(90), epochs=1, batch_size=30)  # the scheduler has left nothing in the way
    torch.testing.assert_close([*plain.model.parameters()], [*recorded.model.parameters()], rtol=1e-4, atol=1e-6)


def test_arrays_and_batches_go_to_the_gpu_of_the_model() -> None:
    first, second = on_gpu(), on_gpu()
    x, y = problem(90)
    torch.manual_seed(1)
    fit(first, (x.numpy(), y.numpy()), (x.numpy(), y.numpy()), epochs=1, batch_size=90)
    torch.manual_seed(1)
    order = epoch_order(90, 0, 0)
    fit(second, [(x[order], y[order])], [(x, y)], epochs=1)
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
