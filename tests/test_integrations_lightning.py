"""The Lightning module trains as the method alone does; Lightning's counts, checkpoints and schedulers are right."""

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from method_cases import looped, problem
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset
from trainer_cases import equal

from altmin.training.evaluate import accuracy as measured

pl = pytest.importorskip("lightning.pytorch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning_ranks
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy

    from altmin.integrations.lightning import AltMinModule, accuracy

pytestmark = pytest.mark.filterwarnings("ignore")  # of few workers, short epochs and the like
SIZE, EPOCHS = 10, 4
X, Y = problem(60)
PER_EPOCH = len(X) // SIZE
ROWS = torch.arange(len(X))
create = lightning_ranks.create


def batches(method: Any = None) -> DataLoader[Any]:
    """In order; with the numbers of the samples for methods that keep variables of each."""
    return DataLoader(TensorDataset(X, Y, *[ROWS] * hasattr(method, "takes_rows")), batch_size=SIZE)


def train(module: Any, folder: Path, *callbacks: Any, ckpt: Any = None, **options: Any) -> Any:
    """Fit, with the same samples for validation, and return Lightning's trainer."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    given = {**quiet, "max_epochs": EPOCHS, "default_root_dir": folder, "enable_checkpointing": bool(callbacks)}
    trainer = pl.Trainer(callbacks=list(callbacks), **{**given, **options})
    safe = {} if ckpt is None else {"ckpt_path": ckpt, "weights_only": True}
    trainer.fit(module, batches(module.method), batches(), **safe)
    return trainer


def by_hand(name: str, rate: Callable[[int], float] | None = None) -> Any:
    method = create(name)
    return looped(method, batches(method), EPOCHS, rate)


@pytest.mark.parametrize("name", ["am-mem", "am-adam-offline", "adam", "bcd"])
def test_whole_and_resumed_runs_are_the_methods_own_loop_and_global_step_counts_its_steps(
    name: str, tmp_path: Path
) -> None:
    alone, first, second = by_hand(name), AltMinModule(create(name)), AltMinModule(create(name))
    train(first, tmp_path, ModelCheckpoint(tmp_path, "{step}", save_top_k=-1))
    with torch.no_grad():
        for p in second.parameters():
            p.zero_()
    trainer = train(second, tmp_path, ckpt=tmp_path / f"step={2 * PER_EPOCH}.ckpt")
    assert trainer.global_step == EPOCHS * PER_EPOCH
    for module in (first, second):
        assert equal(module.model.state_dict(), alone.model.state_dict())
        assert equal(module.method.state_dict(), alone.state_dict())


def test_a_scheduler_steps_each_epoch_and_goes_on_in_a_resumed_run(tmp_path: Path) -> None:
    def halved(optimizer: Any) -> Any:
        return StepLR(optimizer, step_size=2, gamma=0.5)

    alone = by_hand("am-mem", lambda epoch: 4e-3 * 0.5 ** (epoch // 2))
    first, second = AltMinModule(create("am-mem"), halved), AltMinModule(create("am-mem"), halved)
    train(first, tmp_path, ModelCheckpoint(tmp_path, "{step}", save_top_k=-1))
    train(second, tmp_path, ckpt=tmp_path / f"step={PER_EPOCH}.ckpt")
    for module in (first, second):
        assert equal(module.model.state_dict(), alone.model.state_dict())


@pytest.mark.parametrize("kind", ["every fourth batch", "plateau"])
def test_a_scheduler_follows_its_interval_or_watches_a_metric(kind: str, tmp_path: Path) -> None:
    """The plateau's threshold is out of reach: after the first epoch none is better, and each halves the rate."""

    def scheduler(optimizer: Any) -> dict[str, Any]:
        if kind == "plateau":
            made = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs")
            return {"scheduler": made, "monitor": "val_loss"}
        return {"scheduler": ExponentialLR(optimizer, 0.5), "interval": "step", "frequency": 4}

    module = AltMinModule(create("am-adam"), scheduler)
    train(module, tmp_path)
    halvings = EPOCHS - 1 if kind == "plateau" else EPOCHS * (PER_EPOCH // 4)  # batches are counted within an epoch
    assert {group["lr"] for group in module.method.optimizer.param_groups} == {1e-3 * 0.5**halvings}


def test_what_is_logged_are_means_over_all_samples(tmp_path: Path) -> None:
    module = AltMinModule(create("am-adam"), metrics={"accuracy": accuracy})
    trainer = train(module, tmp_path)
    with torch.no_grad():
        loss = nn.CrossEntropyLoss()(module.model(X), Y)
    assert float(trainer.callback_metrics["val_accuracy"]) == pytest.approx(measured(module.model, (X, Y)))
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(float(loss), rel=1e-6)
    (tested,) = trainer.test(module, batches(), verbose=False)
    assert tested["test_loss"] == pytest.approx(float(loss), rel=1e-6)
    torch.testing.assert_close(torch.cat(trainer.predict(module, batches())), module.model(X).detach())


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_rows_of_both(tmp_path: Path) -> None:
    """Ranks have every other row, so that a mini-batch of both is that of one process. Up to the order of sums; the
    ranks have the same weights bit for bit, and one process resumes their checkpoint."""
    name = "am-mem"
    command = [sys.executable, lightning_ranks.__file__, name, str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert equal(first, second)
    rows = problem(lightning_ranks.ROWS)
    method = create(name)
    for _ in range(lightning_ranks.EPOCHS):
        for x, y in zip(*(each.split(lightning_ranks.SIZE) for each in rows), strict=True):
            method.step(x, y)
        method.end_epoch()
    assert first["steps"] == lightning_ranks.EPOCHS * lightning_ranks.ROWS // lightning_ranks.SIZE
    for key, value in method.model.state_dict().items():
        torch.testing.assert_close(first["model"][key], value, rtol=1e-4, atol=1e-6)
    assert first["measured"]["val_accuracy"] == pytest.approx(measured(method.model, rows))
    module, loader = AltMinModule(create(name)), DataLoader(TensorDataset(*rows), batch_size=lightning_ranks.SIZE)
    trainer = pl.Trainer(max_epochs=lightning_ranks.EPOCHS, enable_checkpointing=False, logger=False, accelerator="cpu")
    trainer.fit(module, loader, ckpt_path=tmp_path / "epoch=1.ckpt", weights_only=True)
    for key, value in module.model.state_dict().items():
        torch.testing.assert_close(first["model"][key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("strategy, name", [(DDPStrategy, "bcd"), (FSDPStrategy, "am-adam")])
def test_processes_that_cannot_train_together_are_refused_before_anything_is_trained(strategy: Any, name: str) -> None:
    """Variables of samples; parameters in parts."""
    module = AltMinModule(create(name))
    before = copy.deepcopy(module.model.state_dict())
    module._trainer = type("Two", (), {"world_size": 2, "strategy": strategy()})()
    with pytest.raises(ValueError):
        module.on_fit_start()
    assert equal(module.model.state_dict(), before)


@pytest.mark.parametrize("name, config", [("bcd", {}), ("adam", {"interval": "step"}), ("adam", {"monitor": "other"})])
def test_a_scheduler_without_a_rate_or_without_its_metric_is_refused(
    name: str, config: dict[str, str], tmp_path: Path
) -> None:
    def plateau(optimizer: Any) -> dict[str, Any]:
        return {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "val_loss", **config}

    with pytest.raises(ValueError):
        train(AltMinModule(create(name), plateau), tmp_path, max_epochs=1)
