"""A run sees each task's samples once an epoch, and is judged by all tasks seen; a stream makes rows of such runs."""

import json

import pytest
import torch
from torch import Tensor, nn

from altmin import continual
from altmin.common.errors import Diverged
from altmin.continual import Stream, Task, run
from altmin.training.samples import Samples, epoch_order


def tasks(number: int = 3, samples: int = 5) -> list[Task]:
    """Task k has inputs and labels k; samples tell their place in the second column."""
    places = torch.arange(samples, dtype=torch.float32)
    each = [
        (torch.stack([torch.full((samples,), float(k)), places], 1), torch.full((samples,), k)) for k in range(number)
    ]
    return [Task(samples, samples) for samples in each]


class Latest:
    """Predicts for every input the label seen last; it knows the tasks before only where `remembered` says so."""

    optimizer = None

    def __init__(self, remembered: int | None = None) -> None:
        self.model = nn.Linear(2, 3)
        self.remembered, self.events = remembered, list[str]()
        with torch.no_grad():
            for p in self.model.parameters():
                p.zero_()

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> None:
        self.events.append(",".join(str(int(place)) for place in x[:, 1]))
        self.model.bias.zero_()
        self.model.bias[y[-1]] = 1.0
        if self.remembered is not None and int(y[-1]) > self.remembered:
            self.model.bias[self.remembered] = 2.0

    def end_epoch(self) -> None:
        self.events.append("epoch")

    def end_task(self, samples: Samples) -> None:
        self.events.append(f"task {int(samples[1][0])}")

    def state_dict(self) -> dict[str, Tensor]:
        return {}


def test_accuracies_after_each_task_are_those_on_the_tasks_seen() -> None:
    assert run(Latest(), tasks()) == [[1.0], [0.0, 1.0], [0.0, 0.0, 1.0]]
    assert run(Latest(remembered=0), tasks()) == [[1.0], [1.0, 0.0], [1.0, 0.0, 0.0]]


def test_every_epoch_has_all_samples_of_its_task_in_an_order_of_its_own() -> None:
    learner = Latest()
    done: list[int] = []
    run(learner, tasks(2), epochs=2, batch_size=3, seed=7, after_task=done.append)
    expected = []
    for number in range(4):
        order = [str(i) for i in epoch_order(5, 7, number).tolist()]
        expected += [",".join(order[:3]), ",".join(order[3:]), "epoch"] + [f"task {number // 2}"] * (number % 2)
    assert learner.events == expected
    assert done == [1, 2]


def test_weights_that_are_not_finite_stop_the_run() -> None:
    learner = Latest()
    with torch.no_grad():
        learner.model.weight.fill_(torch.nan)
    with pytest.raises(Diverged, match="weight in task 1 is not finite"):
        run(learner, tasks())


def test_a_run_needs_an_epoch_and_a_sample_a_batch() -> None:
    with pytest.raises(ValueError, match="epochs of run must be a whole number of at least 1, given 0"):
        run(Latest(), tasks(), epochs=0)
    with pytest.raises(ValueError, match="batch_size of run must be a whole number of at least 1, given 0"):
        run(Latest(), tasks(), batch_size=0)


class Small:
    """Ten classes of images, each with a bright spot of its own; notes what it was asked for."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int | None]] = []

    def samples(self, name: str, part: str, limit: int | None = None) -> Samples:
        self.asked.append((name, part, limit))
        generator = torch.Generator().manual_seed(len(part))
        y = torch.arange(200) % 10
        x = torch.randn(200, 784, generator=generator) / 4
        x[torch.arange(200), 70 * y] += 4
        return x.reshape(-1, 1, 28, 28)[:limit], y[:limit]


def test_a_stream_makes_a_row_for_each_seed_and_draws_the_average_so_far() -> None:
    stream, setting, ticks = Stream("slda", "split", model="linear", batch_size=20, limit=150), Small(), []
    rows = stream.make([0, 3], setting, lambda *given: ticks.append(given))
    assert setting.asked == [("mnist", "train", 150), ("mnist", "test", None)]
    assert [row["seed"] for row in rows] == [0, 3]
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        a = row["accuracies"]
        assert [len(r) for r in a] == [1, 2, 3, 4, 5]
        assert row["average_accuracy"] == sum(a[4]) / 5 > 0.9
        assert row["forgetting"] == continual.forgetting(a)
        assert row["rows"] == 150
        assert row["bytes"]["memory"] == 4 * (784 * 784 + 10 * 784 + 10)
        assert stream.points(row, "tasks") == [(k + 1.0, sum(a[k]) / (k + 1)) for k in range(5)]
    assert [done for done, *_ in ticks] == list(range(1, 11))
    assert {total for _, total, _ in ticks} == {10}


def test_a_seed_gives_the_same_row_again_alone_or_among_others() -> None:
    stream = Stream("replay", "permuted", {"budget": 20_000}, batch_size=50)
    alone, among = stream.make([1], Small(), lambda *_: None), stream.make([0, 1], Small(), lambda *_: None)
    assert alone[0]["accuracies"] == among[1]["accuracies"] != among[0]["accuracies"]
    assert len(alone[0]["accuracies"]) == 10


def test_frozen_hidden_layers_stay_random() -> None:
    learner = Stream("adam", "split", freeze_hidden=True).build(0, torch.device("cpu"))
    assert [p.requires_grad for p in learner.model.parameters()] == [False, False, False, False, True, True]


def test_a_run_that_diverged_says_so_and_has_no_points() -> None:
    stream = Stream("sgd", "split", {"lr": 1e30}, batch_size=20)
    (row,) = stream.make([0], Small(), lambda *_: None)
    assert "is not finite" in row["diverged"]
    assert stream.points(row, "tasks") == []


def test_a_config_tells_runs_apart_by_all_but_name_and_seeds() -> None:
    stream = Stream("adam", "split", {"lr": 1e-3})
    assert Stream("adam", "split", {"lr": 1e-3}, seeds=2, label="x").config() == stream.config()
    assert json.loads(json.dumps(stream.config())) == stream.config()
    others = [Stream("sgd", "split", {"lr": 1e-3}), Stream("adam", "permuted", {"lr": 1e-3}), Stream("adam", "split")]
    others += [Stream("adam", "split", {"lr": 1e-3}, part="validation", freeze_hidden=True)]
    assert all(other.config() != stream.config() for other in others)
    assert (stream.name, stream.panel) == ("adam", "split MNIST")


def test_a_reduced_stream_has_one_seed_and_few_samples() -> None:
    small = Stream("adam", "split", epochs=3).reduced()
    assert (small.seeds, small.epochs, small.limit) == (1, 1, 20_000)
    assert Stream("adam", "permuted", limit=10_000).reduced().limit == 4_000
    assert Stream("adam", "split", limit=100).reduced().limit == 100


def test_unknown_sequences_and_axes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown sequence of tasks 'splt'; did you mean 'split'\?"):
        Stream("adam", "splt")
    with pytest.raises(ValueError, match="a run over tasks is drawn against 'tasks', given 'epochs'"):
        Stream("adam", "split").points({"accuracies": []}, "epochs")
