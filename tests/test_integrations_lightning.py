"""The Lightning module trains as the method alone does; Lightning's counts, checkpoints and callbacks are right."""

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from method_cases import problem
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trainer_cases import equal

import altmin
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
METHODS = ["am-mem", "am-adam-offline", "adam", "bcd"]
EVERY_METHOD = pytest.mark.parametrize("name", METHODS)


class Batches:
    """Batches in order, that know how to go on in the middle of a pass, as Lightning asks of stateful loaders."""

    def __init__(self, rows: bool = False):
        self.start = self.at = 0
        self.rows = rows

    def __len__(self) -> int:
        return PER_EPOCH

    def __iter__(self) -> Iterator[list[Tensor]]:
        start, self.start = self.start, 0
        for self.at in range(start + 1, PER_EPOCH + 1):
            at = slice((self.at - 1) * SIZE, self.at * SIZE)
            yield [X[at], Y[at], *([torch.arange(len(X))[at]] if self.rows else [])]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at % PER_EPOCH}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["at"]


def create(name: str) -> altmin.methods.Method:
    torch.manual_seed(0)
    growing = {"penalty": altmin.Penalty(increment=0.5, growth=1.5, maximum=None)} if name.startswith("am-") else {}
    return altmin.methods.create(name, altmin.models.mlp(4, (8,), 3), **growing)


def batches(method: Any) -> Batches:
    return Batches(rows=getattr(method, "takes_rows", False))


def train(module: Any, folder: Path, *callbacks: Any, epochs: int = EPOCHS, ckpt: Any = None, **options: Any) -> Any:
    """A trainer after `fit`, with the same samples for validation."""
    given = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": epochs}
    given |= {"accelerator": "cpu", "default_root_dir": folder, "enable_checkpointing": bool(callbacks)}
    trainer = pl.Trainer(callbacks=list(callbacks), **(given | options))
    safe = {} if ckpt is None else {"ckpt_path": ckpt, "weights_only": True}
    trainer.fit(module, batches(module.method), Batches(), **safe)
    return trainer


def by_hand(name: str, rate: Callable[[int], float] | None = None, epochs: int = EPOCHS) -> Any:
    """The method in a loop of one's own. rate: the learning rate of an epoch."""
    method = create(name)
    for epoch in range(epochs):
        if rate is not None:
            for group in method.optimizer.param_groups:
                group["lr"] = rate(epoch)
        for batch in batches(method):
            method.step(*batch)
        method.end_epoch()
    return method


@EVERY_METHOD
def test_fit_is_the_methods_own_loop_and_global_step_counts_its_steps(name: str, tmp_path: Path) -> None:
    module = AltMinModule(create(name))
    trainer = train(module, tmp_path)
    alone = by_hand(name)
    assert trainer.global_step == EPOCHS * PER_EPOCH
    assert equal(module.model.state_dict(), alone.model.state_dict())
    assert equal(module.method.state_dict(), alone.state_dict())


def test_a_run_resumed_from_any_checkpoint_ends_as_the_uninterrupted_one(tmp_path: Path) -> None:
    """Checkpoints within epochs and after validation, read with weights_only."""
    name = "am-adam-offline"
    whole = by_hand(name)
    within = ModelCheckpoint(tmp_path, "within-{step}", save_top_k=-1, every_n_train_steps=4)
    after = ModelCheckpoint(tmp_path, "after-{step}", save_top_k=-1, every_n_epochs=1)
    train(AltMinModule(create(name)), tmp_path, within, after, epochs=2)
    found = list(tmp_path.glob("*.ckpt"))
    assert len(found) == 5
    for path in found:
        module = AltMinModule(create(name))
        with torch.no_grad():
            for p in module.parameters():
                p.zero_()
        trainer = train(module, tmp_path, ckpt=path)
        assert trainer.global_step == EPOCHS * PER_EPOCH
        assert equal(module.model.state_dict(), whole.model.state_dict())
        assert equal(module.method.state_dict(), whole.state_dict())


def test_a_scheduler_steps_each_epoch_and_goes_on_in_a_resumed_run(tmp_path: Path) -> None:
    def halved(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    whole = by_hand("am-mem", lambda epoch: 4e-3 * 0.5 ** (epoch // 2))
    checkpoint = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1)
    module = AltMinModule(create("am-mem"), halved)
    train(module, tmp_path, checkpoint)
    assert equal(module.model.state_dict(), whole.model.state_dict())
    resumed = AltMinModule(create("am-mem"), halved)
    train(resumed, tmp_path, ckpt=tmp_path / f"step={PER_EPOCH}.ckpt")
    assert equal(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("kind", ["every fourth batch", "plateau"])
def test_a_scheduler_follows_its_interval_or_watches_a_metric(kind: str, tmp_path: Path) -> None:
    """The plateau's threshold is out of reach: after the first epoch none is better, and each halves the rate."""

    def scheduler(optimizer: Any) -> dict[str, Any]:
        if kind == "plateau":
            options = {"factor": 0.5, "patience": 0, "threshold": 1e9, "threshold_mode": "abs"}
            made = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            return {"scheduler": made, "monitor": "val_loss"}
        made = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"scheduler": made, "interval": "step", "frequency": 4}

    module = AltMinModule(create("am-adam"), scheduler)
    train(module, tmp_path)
    halvings = EPOCHS - 1 if kind == "plateau" else EPOCHS * (PER_EPOCH // 4)  # batches are counted within an epoch
    assert {group["lr"] for group in module.method.optimizer.param_groups} == {1e-3 * 0.5**halvings}


def test_what_is_logged_are_means_over_all_samples(tmp_path: Path) -> None:
    module = AltMinModule(create("am-adam"), metrics={"accuracy": accuracy})
    trainer = train(module, tmp_path)
    logged = trainer.callback_metrics
    with torch.no_grad():
        loss = nn.CrossEntropyLoss()(module.model(X), Y)
    assert float(logged["val_accuracy"]) == pytest.approx(measured(module.model, (X, Y)))
    assert float(logged["val_loss"]) == pytest.approx(float(loss), rel=1e-6)
    (tested,) = trainer.test(module, Batches(), verbose=False)
    assert tested["test_loss"] == pytest.approx(float(loss), rel=1e-6)
    predicted = torch.cat(trainer.predict(module, Batches()))
    assert torch.equal(predicted.argmax(1), module.model(X).argmax(1))


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
    method = lightning_ranks.create(name)
    for _ in range(lightning_ranks.EPOCHS):
        for x, y in zip(*(each.split(lightning_ranks.SIZE) for each in rows), strict=True):
            method.step(x, y)
        method.end_epoch()
    assert first["steps"] == lightning_ranks.EPOCHS * lightning_ranks.ROWS // lightning_ranks.SIZE
    for key, value in method.model.state_dict().items():
        torch.testing.assert_close(first["model"][key], value, rtol=1e-4, atol=1e-6)
    assert first["measured"]["val_accuracy"] == pytest.approx(measured(method.model, rows))

    module = AltMinModule(lightning_ranks.create(name))
    loader = DataLoader(TensorDataset(*rows), batch_size=lightning_ranks.SIZE)
    given = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=lightning_ranks.EPOCHS, enable_checkpointing=False, **given)
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
        return {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "val_loss", **config}

    with pytest.raises(ValueError):
        train(AltMinModule(create(name), plateau), tmp_path, epochs=1)
