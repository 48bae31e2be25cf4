"""The batches of an epoch: how many there are, from where a run can go on, and what is refused."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import Pairs, Samples, learner, outcome, samples, weights
from test_training_loop import Recorder, RowRecorder
from torch.utils.data import DataLoader, Sampler

from altmin.training import EachBatch, fit


def endless(limit: int | None = None) -> Iterator[Samples]:
    """Batches of one sample; the sample of batch i is the number i."""
    for i in itertools.count() if limit is None else range(limit):
        yield torch.tensor([[float(i)]]), torch.tensor([i])


def seen(method: Recorder) -> list[int]:
    return list(itertools.chain(*method.seen))


def test_an_iterator_is_gone_through_once() -> None:
    recorder = Recorder()
    history = fit(recorder, endless(4), epochs=1)
    assert seen(recorder) == [0, 1, 2, 3]
    assert history.epochs[0]["train_loss"] == (1 + 2 + 3 + 4) / 4
    assert recorder.ends == [4]


def test_an_iterator_goes_on_in_the_next_epoch_where_it_was() -> None:
    recorder, stream = Recorder(), endless()
    fit(recorder, stream, epochs=3, epoch_batches=2)
    assert seen(recorder) == [0, 1, 2, 3, 4, 5]
    assert recorder.ends == [2, 4, 6]
    assert int(next(stream)[1]) == 6, "no batch more than was needed was taken"


def test_other_iterables_begin_anew_and_may_be_cut_short() -> None:
    recorder = Recorder()
    fit(recorder, list(endless(5)), epochs=2, epoch_batches=3)
    assert seen(recorder) == [0, 1, 2, 0, 1, 2]


def test_more_epochs_than_an_iterator_has_are_refused_before_and_fewer_batches_when_they_show() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match=r"2 epochs cannot be made of generator, .* once; give a list or a DataLoader"):
        fit(recorder, endless(4), epochs=2)
    assert recorder.seen == []
    with pytest.raises(ValueError, match="train of fit gave 1 batches in epoch 2, and 3 were to come"):
        fit(recorder, endless(4), epochs=2, epoch_batches=3)
    with pytest.raises(ValueError, match="gave 0 batches in epoch 1, and at least 1 were to come"):
        fit(recorder, endless(0), epochs=1)


@pytest.mark.parametrize(
    "train, more, words",
    [
        (list(endless(3)), {"batch_size": 2}, "batch_size of fit is for tensors and Datasets, and this list gives"),
        (samples(), {}, "give batch_size, such as"),
        (samples(), {"batch_size": 2, "epoch_batches": 3}, "epoch_batches of fit is for iterables"),
        (list(endless(3)), {"epoch_batches": 0}, "epoch_batches of fit must be a whole number of at least 1"),
        (endless(3), {"schedule": "cosine"}, "'cosine' needs to know how many batches.*epoch_batches, or 'cosine/epo"),
        (endless(3), {"warmup": 2}, "'constant' needs to know how many batches"),
        (list(endless(3)), {"augment": "crop-flip"}, "augment of fit is for tensors"),
        (list(endless(3)), {"checkpoint_every": 1}, "kept at the ends of epochs only; leave out checkpoint_every"),
        (endless(3), {}, "an iterator cannot begin again at a checkpoint"),
    ],
)
def test_what_batches_cannot_do_is_refused(train: Any, more: dict[str, Any], words: str, tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match=words):
        fit(recorder, train, epochs=1, checkpoint=tmp_path / "run", **more)
    assert recorder.seen == []
    assert not (tmp_path / "run").exists()


def test_a_schedule_over_a_known_number_of_batches_is_that_of_tensors() -> None:
    recorder = Recorder()
    fit(recorder, endless(), epochs=2, epoch_batches=3, schedule="linear")
    assert recorder.rates == pytest.approx([0.5 * (1 - i / 6) for i in range(6)])


def test_a_method_that_knows_samples_by_their_numbers_needs_some() -> None:
    with pytest.raises(ValueError, match="RowRecorder keeps variables of each sample; give tensors or a Dataset"):
        fit(RowRecorder(), list(endless(3)), epochs=1)


def test_a_sampler_that_is_told_the_epoch_hears_of_it() -> None:
    class Told(Sampler[int]):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def __len__(self) -> int:
            return 50

        def __iter__(self) -> Iterator[int]:
            return iter(range(50))

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    sampler = Told()
    fit(learner(), DataLoader(Pairs(*samples()), 20, sampler=sampler), epochs=3)
    assert sampler.epochs == [0, 1, 2]


def stop_at(batch: int) -> EachBatch:
    def stop(progress: Any) -> None:
        if progress.batch == batch:
            raise ZeroDivisionError

    return EachBatch(stop)


def loaded(generator: bool) -> DataLoader[Any]:
    own = torch.Generator().manual_seed(4) if generator else None
    return DataLoader(Pairs(*samples()), 20, shuffle=True, generator=own)


@pytest.mark.parametrize("generator", [False, True], ids=["the global random state", "a generator of its own"])
def test_a_run_over_a_shuffling_dataloader_goes_on_from_the_end_of_an_epoch(generator: bool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 4, "checkpoint": tmp_path / "run"}
    whole = learner(dropout=0.3)
    torch.manual_seed(1)
    expected = outcome(whole, fit(whole, loaded(generator), samples(30, 1), epochs=4))
    stopped = learner(dropout=0.3)
    torch.manual_seed(1)
    with pytest.raises(ZeroDivisionError):
        fit(stopped, loaded(generator), samples(30, 1), callbacks=[stop_at(8)], **settings)
    torch.manual_seed(9)
    again = learner(dropout=0.3, seed=5)
    assert outcome(again, fit(again, loaded(generator), samples(30, 1), resume=True, **settings)) == expected


def test_a_run_over_a_dataset_goes_on_inside_an_epoch(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 20, "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    whole, again = learner(), learner(seed=5)
    fit(whole, samples(), epochs=2, batch_size=20)
    with pytest.raises(ZeroDivisionError):
        fit(learner(), Pairs(*samples()), callbacks=[stop_at(4)], **settings)
    numbers: list[int] = []
    fit(again, Pairs(*samples()), resume=True, callbacks=[EachBatch(lambda p: numbers.append(p.batch))], **settings)
    assert numbers == [5, 6]
    assert all(map(torch.equal, weights(whole), weights(again)))


def test_a_run_over_other_batches_does_not_go_on(tmp_path: Path) -> None:
    fit(learner(), loaded(False), epochs=1, checkpoint=tmp_path / "run")
    for train, words in (
        (DataLoader(Pairs(*samples()), 10), "its batches of an epoch is 3, here it is 5"),
        (list(loaded(False)), "its training data is DataLoader of 3 batches of 20, here it is list of 3 batches"),
    ):
        with pytest.raises(ValueError, match=words):
            fit(learner(), train, epochs=2, checkpoint=tmp_path / "run", resume=True)
