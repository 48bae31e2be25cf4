"""A short run of the downloads' part of the trial, in which every fault comes once."""

from trial.downloads import FAULTS, trial


def test_every_fault_of_a_server_ends_in_the_right_file_or_in_a_sentence() -> None:
    failures: list[str] = []
    found = trial(len(FAULTS), 0, failures)
    assert failures == []
    assert found["faults"] == len(FAULTS) >= 30
    assert found["downloads"] + found["refused"] == len(FAULTS)
    assert min(found["downloads"], found["refused"]) >= 10
