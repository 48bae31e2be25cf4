"""Average accuracy and forgetting, by hand."""

import pytest

from altmin.continual.measures import average_accuracy, average_so_far, forgetting

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
