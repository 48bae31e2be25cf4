"""A short run of the trial of killed runs."""

from trial.kills import trial


def test_runs_that_are_killed_and_resumed_end_as_if_left_alone() -> None:
    failures: list[str] = []
    counters = trial(8, 0, failures)
    assert failures == []
    assert counters["kills"] >= 8
    assert counters["runs"] >= 1
