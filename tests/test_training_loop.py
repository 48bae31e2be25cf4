"""The loop shows a method the data in an order fixed by the seed, measures without disturbing, and refuses what cannot
be before anything is trained."""

import math
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import Pairs, Recorder, RowRecorder, learner, numbered, samples, weights
from torch import Tensor, nn
from torch.nn import functional as F

from altmin import methods
from altmin.common.errors import Diverged
from altmin.training import (
    EMA,
    BestWeights,
    EachBatch,
    Progress,
    accuracy,
    batches_per_epoch,
    epoch_order,
    fit,
)
from altmin.training.samples import batch_generator, device_of


def test_each_epoch_shows_every_sample_once_in_an_order_of_its_own() -> None:
    recorder = Recorder()
    fit(recorder, numbered(11), epochs=3, batch_size=4)
    assert [len(batch) for batch in recorder.seen] == [4, 4, 3] * 3
    epochs = [list(chain(*recorder.seen[i : i + 3])) for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert recorder.ends == [3, 6, 9]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def seen(seed: int, noise: int) -> list[list[int]]:
        recorder = Recorder()
        torch.manual_seed(noise)
        expected = torch.get_rng_state()
        fit(recorder, numbered(9), epochs=2, batch_size=4, seed=seed)
        assert torch.equal(torch.get_rng_state(), expected)
        return recorder.seen

    assert seen(3, noise=0) == seen(3, noise=1)
    assert seen(3, noise=0) != seen(4, noise=0)
    assert list(chain(*seen(3, 0)[3:])) == epoch_order(9, seed=3, epoch=1).tolist()
    orders = {tuple(epoch_order(30, seed, epoch).tolist()) for seed in (-1, 0, 1, 2, 2**40) for epoch in range(6)}
    assert len(orders) == 30


def test_every_batch_has_random_numbers_of_its_own_that_are_the_same_again() -> None:
    def drawn(*key: int) -> int:
        return int(torch.randint(2**60, (), generator=batch_generator(*key)))

    keys = [(seed, epoch, batch) for seed in (0, 1, 12) for epoch in (0, 1, 11) for batch in (0, 1, 2, 11)]
    assert len({drawn(*key) for key in keys}) == len(keys)
    assert [drawn(*key) for key in keys] == [drawn(*key) for key in keys]


def test_batches_are_as_many_as_it_takes_for_all_samples() -> None:
    """Counted by cutting a list; a last one of a single sample is nothing to batch norm."""
    plain, normed = nn.Linear(1, 2), nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.BatchNorm2d(2)))
    for n in range(1, 14):
        for size in range(1, 6):
            sizes = [min(size, n - start) for start in range(0, n, size)]
            assert batches_per_epoch(plain, n, size) == len(sizes)
            left_out = size > 1 and len(sizes) > 1 and sizes[-1] == 1
            assert batches_per_epoch(normed, n, size) == len(sizes) - left_out
    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")


def test_a_method_that_keeps_variables_of_samples_is_told_which_they_are() -> None:
    recorder = RowRecorder()
    fit(recorder, numbered(11), epochs=2, batch_size=4)
    assert len(recorder.seen) == 6


def test_train_loss_is_the_mean_of_the_steps_losses_of_that_epoch_and_progress_follows() -> None:
    heard: list[Progress] = []
    recorder = Recorder(losses=[1.0, 2.0, 6.0, 10.0, 20.0, 30.0])
    history = fit(recorder, numbered(9), epochs=2, batch_size=4, callbacks=[EachBatch(heard.append)])
    assert [row["train_loss"] for row in history.epochs] == [3.0, 20.0]
    assert [(p.batch, p.batches, p.train_loss) for p in heard] == [
        *((1, 6, 1), (2, 6, 1.5), (3, 6, 3), (4, 6, 10), (5, 6, 15), (6, 6, 20)),
    ]


class NoisyAlways(nn.Module):
    """Noise in evaluation too: one that moved the random state would show in the training."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3, training=True)


def noisy(*extra: nn.Module) -> Any:
    torch.manual_seed(0)
    return methods.create("adam", nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *extra, nn.Linear(8, 3)), lr=0.01)


def test_an_early_evaluation_gives_what_stopping_there_gives() -> None:
    train, test = samples(), samples(40, seed=1)
    settings = {"epochs": 2, "batch_size": 20, "seed": 5, "eval_batches": [4, 2, 4], "schedule": "constant"}
    history = fit(noisy(nn.Dropout(0.2)), train, test, **settings)
    by_hand = noisy(nn.Dropout(0.2))
    expected = []
    for epoch in range(2):
        for rows in epoch_order(50, 5, epoch).split(20):
            by_hand.step(train[0][rows], train[1][rows])
            expected.append(accuracy(by_hand.model, test))
    assert history.batches == [{"batch": b, "test_accuracy": expected[b - 1]} for b in (2, 4)]
    assert [row["test_accuracy"] for row in history.epochs] == [expected[2], expected[5]]
    assert len(set(expected)) > 1


def test_evaluations_leave_no_trace_in_the_training() -> None:
    runs = []
    for eval_batches, test in [((), None), ((), samples(40, 1)), (range(1, 7), samples(40, 1))]:
        method = noisy(NoisyAlways(), nn.BatchNorm1d(8))
        fit(method, samples(), test, epochs=2, batch_size=20, eval_batches=eval_batches)
        runs.append(method.model.state_dict())
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0].values(), other.values(), strict=True))


def test_a_loss_or_a_parameter_that_is_not_finite_stops_the_run_and_says_where() -> None:
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 4}
    with pytest.raises(Diverged, match="the loss in epoch 2, batch 2 of 3 is not finite"):
        fit(Recorder(losses=[1.0, 1.0, 1.0, 1.0, math.inf]), numbered(9), **settings)

    class Breaking(Recorder):
        def step(self, x: Tensor, y: Tensor) -> Any:
            if len(self.seen) == 1:
                raise Diverged("block 3", "raise mu")
            return super().step(x, y)

    with pytest.raises(Diverged, match=r"block 3 in epoch 1, batch 2 of 3 is not finite; raise mu$") as caught:
        fit(Breaking(), numbered(9), **settings)
    assert caught.value.where == "block 3 in epoch 1, batch 2 of 3"

    class Spoiling(Recorder):
        def end_epoch(self) -> None:
            nn.init.constant_(self.model.get_parameter("bias"), math.nan)

    told: list[Progress] = []
    with pytest.raises(Diverged, match="bias in epoch 1, batch 3 of 3"):
        fit(Spoiling(), numbered(9), **settings, callbacks=[EachBatch(told.append)])
    assert told[-1].history.epochs == [], "that epoch has no row"


LIST = [samples(20)]
FLOATS = torch.ones(3, 2)
REFUSED: dict[str, dict[str, Any]] = {
    "no epochs": {"epochs": 0},
    "batch size": {"batch_size": -2},
    "no batch size": {"batch_size": None},
    "batch size for batches": {"train": LIST, "batch_size": 2},
    "no such setting": {"epoch_size": 3},
    "a setting of named runs": {"limit": 3},
    "no samples": {"train": (torch.ones(0, 6), torch.ones(0))},
    "fewer labels": {"train": (torch.ones(3, 6), torch.ones(2))},
    "fewer test labels": {"test": (torch.ones(3, 6), torch.ones(2))},
    "no data": {"train": None},
    "a path": {"train": "data.npz"},
    "inputs alone": {"train": FLOATS},
    "NaN": {"train": (samples()[0] / 0, samples()[1])},
    "no batches": {"train": [], "batch_size": None},
    "a batch that is none": {"train": [{"x": FLOATS}], "batch_size": None},
    "a batch with fewer labels": {"train": [(FLOATS, torch.ones(2))], "batch_size": None},
    "an iterator to measure on": {"test": iter(LIST)},
    "a batch beyond": {"eval_batches": [7]},
    "batch 0": {"eval_batches": [0]},
    "nothing to measure on": {"eval_batches": [1], "test": None},
    "schedule": {"schedule": "cosin"},
    "schedule's unit": {"schedule": "cosine/hour"},
    "long warm-up": {"warmup": 6},
    "negative warm-up": {"warmup": -1},
    "unknown length": {"train": iter(LIST), "batch_size": None, "schedule": "cosine"},
    "schedule and scheduler": {"schedule": "cosine", "scheduler": lambda optimizer: None},
    "resume without a file": {"resume": True},
    "checkpoints without a file": {"checkpoint_every": 3},
    "augmentation": {"augment": "crop-flop"},
    "no augmentation": {"augment": 3},
    "augmentation of batches": {"train": LIST, "batch_size": None, "augment": lambda x, generator: x},
    "a Dataset": {"train": Pairs(*samples())},
    "precision": {"precision": "float8"},
    "metric": {"metrics": "acuracy"},
    "no metric": {"metrics": ["mse", 3]},
    "accuracy of numbers": {"test": (samples()[0], samples()[0]), "metrics": "accuracy"},
    "no callback": {"callbacks": [3]},
    "a class": {"callbacks": [EMA]},
    "no column": {"callbacks": [BestWeights("loss")]},
    "mode unknown": {"callbacks": [BestWeights("test_score")], "metrics": {"score": lambda output, y: 1.0}},
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_cannot_be_is_refused_in_a_line_and_nothing_is_trained(change: str) -> None:
    method = learner()
    before = weights(method)
    given = {"train": samples(), "test": samples(), "epochs": 2, "batch_size": 20, **REFUSED[change]}
    with pytest.raises((ValueError, TypeError)) as caught:
        fit(method, **given)
    assert "\n" not in str(caught.value)
    assert all(map(torch.equal, weights(method), before))


def test_methods_that_keep_variables_of_samples_need_numbered_samples_that_stay_the_same(tmp_path: Path) -> None:
    for settings in ({"train": [numbered(3)]}, {"train": numbered(3), "batch_size": 3, "augment": lambda x, g: x}):
        with pytest.raises(ValueError, match="RowRecorder keeps variables of each sample"):
            fit(RowRecorder(), epochs=1, **settings)
