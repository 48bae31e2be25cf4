"""Tasks have the classes, or the permuted inputs, that they are to have."""

import pytest
import torch

from altmin.continual.tasks import permuted, split

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
