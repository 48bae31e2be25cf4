"""Streams of tasks: what a run sees and how it is judged, tasks, and learners by name."""

import copy
import json

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import continual, methods
from altmin.common.errors import Diverged
from altmin.continual import Stream, Task, learners, run
from altmin.continual.base import Learner
from altmin.continual.tasks import average_accuracy, average_so_far, forgetting, permuted, split
from altmin.training.samples import Samples, epoch_order

A = [[0.9], [0.95, 0.8], [0.5, 0.6, 1.0]]


def test_the_average_is_over_all_tasks_after_the_last() -> None:
    assert average_accuracy(A) == pytest.approx((0.5 + 0.6 + 1.0) / 3)


def test_the_average_so_far_is_over_the_tasks_seen() -> None:
    assert average_so_far(A) == pytest.approx([0.9, 0.875, 0.7])
    assert average_so_far([]) == []


def test_forgetting_counts_from_the_best_that_a_task_had_before_the_end() -> None:
    # task 0 was best, at 0.95, after task 1; the last task has had no time to be forgotten
    assert forgetting(A) == pytest.approx(((0.95 - 0.5) + (0.8 - 0.6)) / 2)


def test_what_later_tasks_helped_is_negative_forgetting() -> None:
    assert forgetting([[0.5], [0.7, 0.9]]) == pytest.approx(-0.2)


def test_a_single_task_is_not_forgotten() -> None:
    assert forgetting([[0.5]]) == 0.0


X = torch.arange(24, dtype=torch.float32).reshape(12, 1, 1, 2)

Y = torch.arange(12) % 4


def test_split_deals_out_the_classes_in_order_and_keeps_labels_and_pairs() -> None:
    first, second = split((X, Y), (X[:4], Y[:4]), tasks=2)
    for task, classes in ((first, {0, 1}), (second, {2, 3})):
        for (x, y), samples in zip(task, (12, 4), strict=True):
            assert set(y.tolist()) == classes
            assert len(y) == samples // 2
            for sample, label in zip(x, y, strict=True):
                number = int(sample.flatten()[0]) // 2  # the sample's place in X
                assert torch.equal(sample, X[number])
                assert label == Y[number]


def test_classes_that_cannot_be_dealt_out_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match=r"4 classes cannot be split into 3 equal tasks; give a number that divides"):
        list(split((X, Y), (X, Y), tasks=3))


def test_a_task_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="task 2 of 2 has no samples to learn or to evaluate"):
        list(split((X, Y), (X[:2], Y[:2]), tasks=2))


def test_the_first_permuted_task_is_the_data_and_every_other_moves_all_samples_by_one_permutation() -> None:
    x, y = torch.randn(5, 1, 3, 4), torch.arange(5)
    first, *others = permuted((x, y), (x[:2], y[:2]), tasks=4, seed=1)
    assert torch.equal(first.train[0], x)
    orders = []
    for task in others:
        # values of a sample are all different, so its order can be read from it
        order = [x[0].flatten().tolist().index(value) for value in task.train[0][0].flatten().tolist()]
        assert sorted(order) == list(range(12))
        for moved, given in ((task.train, (x, y)), (task.evaluated, (x[:2], y[:2]))):
            assert torch.equal(moved[0].flatten(1), given[0].flatten(1)[:, order])
            assert moved[0].shape == given[0].shape
            assert torch.equal(moved[1], given[1])
        orders.append(tuple(order))
    assert len({*orders, tuple(range(12))}) == 4


def test_permutations_depend_on_the_seed_alone() -> None:
    x, y = torch.randn(2, 30), torch.arange(2)

    def second(seed: int) -> torch.Tensor:
        torch.rand(3)
        return list(permuted((x, y), (x, y), 2, seed))[1].train[0]

    assert torch.equal(second(3), second(3))
    assert not torch.equal(second(3), second(4))


def test_the_number_of_tasks_is_a_whole_number_from_one() -> None:
    with pytest.raises(ValueError, match="tasks of permuted must be a whole number of at least 1, given 0"):
        next(permuted((X, Y), (X, Y), 0))


def test_its_steps_are_the_methods_and_the_end_of_a_task_changes_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    other = copy.deepcopy(model)
    learner, method = Learner(methods.create("am-mem-fitted", model)), methods.create("am-mem-fitted", other)
    x, y = torch.randn(6, 3), torch.arange(6) % 2
    for _ in range(3):
        assert learner.step(x, y).loss == method.step(x, y).loss
        learner.end_epoch()
        method.end_epoch()
        learner.end_task((x, y))
    assert learner.model is model
    assert learner.optimizer is learner.method.optimizer
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
    kept = learner.state_dict()["weights"]["states"]
    torch.testing.assert_close(kept, method.state_dict()["weights"]["states"], rtol=0, atol=0)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return altmin.models.mlp(5, (4,), 3)


WEIGHTS = 4 * (5 * 4 + 4 + 4 * 3 + 3)

LAST = 4 * (4 * 3 + 3)

HAND_COUNTED = {
    "sgd": (WEIGHTS, 0),  # momentum, one a weight
    "adam": (2 * WEIGHTS, 0),
    "am-adam": (2 * WEIGHTS, 0),
    "am-mem": (0, 4 * (2 * (6 * 6 + 5 * 5) + 2) + 2 * WEIGHTS),  # A, B and a scale of both blocks; momentum and squares
    "am-mem-fitted": (2 * LAST, 4 * (6 * 6 + 4 * 6)),  # A and R of the hidden block, a 1 appended to its input
    "ewc": (2 * WEIGHTS, 2 * WEIGHTS),  # importance and anchor
    "replay": (2 * WEIGHTS, 16 * 6),  # 100 bytes hold 16 samples of 5 values and a label
    "slda": (0, 4 * (4 * 4 + 3 * 4 + 3)),  # scatter, means, counts
    "falling-sgd": (0, 0),
    "ridge": (0, 4 * (5 * 6 // 2 + 3 * 5)),  # a triangle of A, and B, a 1 appended to four features
    "analytic": (0, 4 * (5 * 6 // 2 + 3 * 5)),
}


@pytest.mark.parametrize("name", HAND_COUNTED)
def test_moments_and_memory_have_as_many_bytes_as_counted_by_hand(name: str) -> None:
    learner = learners.create(name, net(), **({"budget": 100} if name == "replay" else {}))
    x, y = torch.randn(6, 5), torch.arange(6) % 3
    learner.step(x, y)
    learner.end_epoch()
    learner.end_task((x, y))
    moments, memory = HAND_COUNTED[name]
    assert learners.sizes(learner) == {"weights": WEIGHTS, "moments": moments, "memory": memory}


def test_the_default_buffer_takes_as_much_as_the_memory_of_the_papers_small_net() -> None:
    x, y = torch.rand(4, 1, 28, 28), torch.arange(4)
    memory = {}
    for name in ("am-mem-fitted", "replay"):
        learner = learners.create(name, altmin.models.mlp(784, (100, 100), 10))
        learner.step(x, y)
        memory[name] = learners.sizes(learner)["memory"]
    assert 0 <= memory["am-mem-fitted"] - memory["replay"] < 785


def test_all_methods_are_learners_too() -> None:
    assert set(methods.names()) < set(learners.names())
    assert set(learners.names()) - set(methods.names()) == {
        "analytic",
        "ewc",
        "falling-sgd",
        "remembering",
        "replay",
        "ridge",
        "slda",
    }


def test_options_reach_the_learner() -> None:
    assert learners.create("ewc", net(), strength=7.0).strength == 7.0
    assert learners.create("am-mem-fitted", net(), forget=1.0).method.weights.forget == 1.0


def test_unknown_names_and_options_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"unknown learner 'repaly'; did you mean 'replay'\?"):
        learners.create("repaly", net())
    with pytest.raises(ValueError, match=r"unknown option of learner 'ewc', 'strenght'; did you mean 'strength'\?"):
        learners.create("ewc", net(), strenght=1.0)
    with pytest.raises(ValueError, match="unknown option of method 'adam', 'strength'"):
        learners.create("adam", net(), strength=1.0)


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
