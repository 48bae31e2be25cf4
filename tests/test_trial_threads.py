"""A short run of the trial of threads."""

from trial import threads


def test_models_that_train_in_threads_come_to_what_they_come_to_alone() -> None:
    failures: list[str] = []
    counters = threads.trial(2, 0, failures)
    assert failures == []
    assert counters["runs"] >= 2 * 12
    assert counters["steps"] == counters["runs"] * threads.STEPS
