"""`fit` on several ranks is `fit` in one process: history, weights, checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from fit_on_ranks import KINDS, kept, layers, per_sample, small, stopping, trained, two_ranks

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    kept(str(folder / "one"), stop=9, spread=False)
    return ranks.run(2, two_ranks, str(folder), KINDS)


def assert_close(found: Any, expected: Any) -> None:
    weights, rows = found[:2]
    torch.testing.assert_close(weights, expected[0], **CLOSE)
    for kind in ("epochs", "batches"):
        assert len(rows[kind]) == len(expected[1][kind])
        for row, other in zip(rows[kind], expected[1][kind], strict=True):
            assert row == pytest.approx(other, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_have_the_history_and_the_weights_of_one_process(kind: str, two: Any, folder: Path) -> None:
    expected = trained(kind, str(folder), spread=False)
    for found in two:
        assert_close(found[kind], expected)
    for name, value in two[0][kind][0].items():
        assert torch.equal(value, two[1][kind][0][name]), f"{name} differs between ranks"
    assert two[0][kind][1] == two[1][kind][1]


def test_a_batch_of_fewer_samples_than_ranks_is_learnt_by_all(two: Any) -> None:
    expected = small(spread=False)
    for found in two:
        assert_close(found["fewer samples than ranks"], expected)


def test_ranks_stop_alike_and_one_shows_how_far_they_are(two: Any) -> None:
    expected = stopping(spread=False)
    assert 2 < len(expected[1]["epochs"]) < 9
    for found in two:
        assert_close(found["stopping"], expected)
    assert [found["stopping"][2] for found in two] == [True, False]


def test_a_method_whose_blocks_are_on_ranks_is_fitted_kept_and_continued(
    two: Any, folder: Path, tmp_path: Path
) -> None:
    """With the average of all weights after each step, which needs those of the other ranks."""
    expected = layers(str(tmp_path / "whole"))
    for found in two:
        assert_close(found["layers"], expected)
    assert_close(layers(str(folder / "for one"), resume=True), expected)


@pytest.mark.parametrize("name", ["admm", "bcd"])
def test_variables_of_samples_are_kept_for_any_number_of_ranks(
    name: str, two: Any, folder: Path, tmp_path: Path
) -> None:
    expected = per_sample(name, str(tmp_path / "whole"), spread=False)
    for found in two:
        assert_close(found[name], expected)
    assert_close(per_sample(name, str(folder / f"{name} for one"), spread=False, resume=True), expected)


def test_at_the_end_of_an_epoch_one_rank_may_stop_all(two: Any) -> None:
    assert [found["epochs of which one rank stops"] for found in two] == [2, 2]


def test_the_first_rank_alone_writes_the_checkpoint(two: Any) -> None:
    """One was given another name by each rank."""
    assert {*two[1]["files"]} >= {"two", "by 0"}
    assert "by 1" not in two[1]["files"]


def test_a_run_goes_on_with_another_number_of_ranks(two: Any, folder: Path) -> None:
    """One of two ranks in one process, and one of one process with two ranks."""
    whole = kept(str(folder / "whole"), spread=False)
    assert_close(kept(str(folder / "two"), spread=False, resume=True), whole)
    for found in two:
        assert_close(found["of one process"], whole)


@pytest.mark.parametrize("name", ["exists", "seen by one", "another", "sampler", "seeds"])
def test_mistakes_are_refused_on_all_ranks(two: Any, name: str) -> None:
    assert [found[name] for found in two] == ["ValueError"] * 2
