"""A short run of the trial of damaged and foreign checkpoints."""

from trial.checkpoints import KINDS, trial


def test_damaged_and_foreign_checkpoints_are_refused_and_others_resume() -> None:
    failures: list[str] = []
    counters = trial(60, 0, failures)
    assert failures == []
    assert counters["resumed"] == 6
    assert counters["refused"] == 54
    assert all(counters[kind] for kind in KINDS)
