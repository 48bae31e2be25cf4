"""The buffer is a uniform sample of what was seen, in bytes; a step joins a batch with a draw from it."""

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from altmin import methods
from altmin.continual.replay import Replay, Reservoir, replay


class Numbered(Reservoir):
    """Its random numbers are given, one for each sample that comes when it is full."""

    def __init__(self, budget: int, numbers: Iterator[int]):
        super().__init__(budget)
        self.numbers = numbers

    def _slot(self, n: int) -> int:
        return n if n < self.capacity else next(self.numbers)


def kept(numbers: tuple[int, ...], capacity: int, samples: int, batch: int) -> frozenset[int]:
    """Which of the samples, named by their labels, are kept after they came in batches."""
    buffer, labels = Numbered(2 * capacity, iter(numbers)), torch.arange(samples)
    for part in labels.split(batch):
        buffer.add(part[:, None].float(), part)
    return frozenset(buffer.labels.tolist())


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_every_subset_of_the_samples_is_kept_with_equal_probability(batch: int) -> None:
    """Over all outcomes of the random numbers: the one for sample n (from 0) is any of 0 to n, each as likely."""
    capacity, samples = 2, 5
    outcomes = itertools.product(*(range(n + 1) for n in range(capacity, samples)))
    found = Counter(kept(numbers, capacity, samples, batch) for numbers in outcomes)
    assert set(found) == {frozenset(two) for two in itertools.combinations(range(samples), capacity)}
    total = sum(found.values())
    assert {Fraction(count, total) for count in found.values()} == {Fraction(1, 10)}


def test_the_number_of_a_sample_that_comes_late_is_any_up_to_its_own() -> None:
    torch.manual_seed(0)
    buffer = Reservoir(4)
    buffer.add(torch.rand(2, 1), torch.zeros(2, dtype=torch.int64))
    assert [buffer._slot(n) for n in (0, 1)] == [0, 1]
    drawn = Counter(buffer._slot(3) for _ in range(4000))
    assert set(drawn) == {0, 1, 2, 3}
    for count in drawn.values():  # 5 standard deviations of the binomial distribution
        assert abs(count - 1000) < 5 * (4000 * 0.25 * 0.75) ** 0.5


def test_values_on_256_levels_come_back_as_they_were_and_fill_one_byte_each() -> None:
    levels = torch.arange(256.0)
    x = (levels / 255 - 0.1307) / 0.3081  # as standardised images are
    buffer = Reservoir(1000)
    buffer.add(x.reshape(64, 1, 2, 2), torch.arange(64))
    values, labels = buffer.draw(64)
    assert (values - x.reshape(64, 1, 2, 2)[labels]).abs().max() < 1e-6
    assert sum(t.numel() * t.element_size() for t in buffer.state_dict().values()) == 1000 // 5 * 5


def test_values_beyond_those_of_the_first_batch_are_clipped() -> None:
    buffer = Reservoir(100)
    buffer.add(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    buffer.add(torch.tensor([[-3.0], [7.0]]), torch.tensor([2, 3]))
    values, labels = buffer.draw(4)
    assert dict(zip(labels.tolist(), values.flatten().tolist(), strict=True)) == {0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0}


def test_a_draw_has_no_sample_twice_and_at_most_all() -> None:
    buffer = Reservoir(100)
    buffer.add(torch.rand(7, 1), torch.arange(7))
    for _ in range(5):
        assert len(set(buffer.draw(5)[1].tolist())) == 5
    assert sorted(buffer.draw(9)[1].tolist()) == list(range(7))


class Watched:
    """A method that notes its batches."""

    model, optimizer = nn.Linear(1, 4), None

    def __init__(self) -> None:
        self.batches: list[tuple[Tensor, Tensor]] = []

    def step(self, x: Tensor, y: Tensor) -> None:
        self.batches.append((x, y))


def test_a_step_learns_the_batch_and_as_many_samples_of_earlier_batches() -> None:
    watched = Watched()
    learner = Replay(watched, 100)  # type: ignore[arg-type]
    for k in range(3):
        learner.step(torch.full((2, 1), float(k)), torch.full((2,), k))
    assert [y.tolist()[:2] for _, y in watched.batches] == [[0, 0], [1, 1], [2, 2]]
    assert len(watched.batches[0][1]) == 2
    assert watched.batches[1][1].tolist() == [1, 1, 0, 0]
    assert set(watched.batches[2][1].tolist()[2:]) <= {0, 1}
    assert len(watched.batches[2][1]) == 4
    assert sorted(learner.buffer.draw(9)[1].tolist()) == [0, 0, 1, 1, 2, 2]  # samples replayed are not added again


def two_tasks() -> list[tuple[Tensor, Tensor]]:
    """Four clusters on the axes: first the classes 0 and 1, then 2 and 3."""
    torch.manual_seed(0)
    y = torch.arange(4).repeat(400)
    x = 4 * nn.functional.one_hot(y).float() + torch.randn(len(y), 4)
    return [(x[chosen], y[chosen]) for chosen in (y < 2, y >= 2)]


def test_replay_remembers_the_first_task_which_adam_alone_forgets() -> None:
    def first_task_after_both(of: str) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4))
        learner = replay(model, 500, lr=0.03) if of == "replay" else methods.create("adam", model, lr=0.03)
        first, second = two_tasks()
        for x, y in (first, second):
            for rows in torch.arange(len(x)).split(20):
                learner.step(x[rows], y[rows])
        return float((model(first[0]).argmax(1) == first[1]).float().mean())

    assert first_task_after_both("adam") < 0.5
    assert first_task_after_both("replay") > 0.9


def test_what_a_buffer_cannot_keep_is_refused_and_nothing_changes() -> None:
    buffer, x = Reservoir(4), torch.rand(2, 5)
    with pytest.raises(ValueError, match="a buffer of 4 bytes holds no sample of 6 bytes; give a larger budget"):
        buffer.add(x, torch.zeros(2, dtype=torch.int64))
    for labels in (torch.tensor([0, 256]), torch.tensor([-1, 0]), torch.rand(2)):
        with pytest.raises(ValueError, match="keeps labels in a byte; give whole numbers from 0 to 255"):
            buffer.add(x[:, :2], labels)
    assert buffer.seen == 0
    assert buffer.state_dict() == {}
    with pytest.raises(ValueError, match="budget of Reservoir must be a whole number of at least 1, given 0"):
        Reservoir(0)


def test_a_first_batch_without_contrast_comes_back_too() -> None:
    buffer = Reservoir(10)
    buffer.add(torch.full((2, 1), 3.0), torch.tensor([0, 1]))
    assert buffer.draw(2)[0].tolist() == [[3.0], [3.0]]
