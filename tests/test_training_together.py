"""`fit` on several ranks is `fit` in one process: history, weights, checkpoints; the failure of one rank stops all."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from together_cases import (
    KINDS,
    RUN,
    Broken,
    double,
    four_ranks,
    kept,
    layers,
    learner,
    per_sample,
    small,
    stopping,
    trained,
    two_ranks,
)

from altmin.data import write_shards
from altmin.training import fit
from altmin.training.samples import epoch_order
from altmin.training.together import Together

HERE = [kind for kind in KINDS if kind != "Shards" or find_spec("pyarrow")]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("together")
    if "Shards" in HERE:
        x, y = double()
        write_shards(place / "shards", [(x.numpy(), y.numpy())])
    return place


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    return ranks.run(2, two_ranks, str(folder), HERE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One process that was never stopped."""
    return kept(str(tmp_path_factory.mktemp("whole") / "run"), spread=False)


def assert_close(found: Any, expected: Any) -> None:
    weights, rows = found[:2]
    torch.testing.assert_close(weights, expected[0], **CLOSE)
    for kind in ("epochs", "batches"):
        assert len(rows[kind]) == len(expected[1][kind])
        for row, other in zip(rows[kind], expected[1][kind], strict=True):
            assert row == pytest.approx(other, rel=1e-10)


@pytest.mark.parametrize("kind", HERE)
def test_two_ranks_have_the_history_and_the_weights_of_one_process(kind: str, two: Any, folder: Path) -> None:
    expected = trained(kind, str(folder), spread=False)
    for found in two:
        assert_close(found[kind], expected)
    for name, value in two[0][kind][0].items():
        assert torch.equal(value, two[1][kind][0][name]), f"{name} differs between ranks"
    assert two[0][kind][1] == two[1][kind][1]


def test_a_rank_reads_its_own_rows_of_a_dataset_and_no_others(two: Any) -> None:
    """The first half of each batch, with the middle one, is rank 0's; one sample is looked at before the run."""
    first, second = (list[int](), list[int]())
    for epoch in range(RUN["epochs"]):
        for batch in epoch_order(50, RUN["seed"], epoch).split(RUN["batch_size"]):
            half = (len(batch) + 1) // 2
            first += batch[:half].tolist()
            second += batch[half:].tolist()
    assert [found["Dataset"][2] for found in two] == [first, second]


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


@pytest.mark.parametrize("resumed", ["one process", "two ranks", "four ranks"])
def test_a_run_of_two_ranks_goes_on_with_another_number(
    resumed: str, two: Any, folder: Path, whole: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = str(shutil.copy(folder / "two", tmp_path / "copy"))
    if resumed == "one process":
        assert_close(kept(path, spread=False, resume=True), whole)
    elif resumed == "four ranks":
        for found in request.getfixturevalue("four"):
            assert_close(found["resumed"], whole)
    else:
        kept(str(tmp_path / "one"), stop=9, spread=False)  # and one process's goes on with several ranks
        for found in ranks.run(2, two_ranks_again, str(tmp_path / "one")):
            assert_close(found, whole)


def two_ranks_again(rank: int, path: str) -> Any:
    return kept(path, resume=True)


@pytest.fixture(scope="module")
def four(two: Any, folder: Path) -> list[dict[str, Any]]:
    path = shutil.copy(folder / "two", folder / "for four")
    return ranks.run(4, four_ranks, str(path))


def test_an_error_outside_a_step_stops_the_other_ranks_with_its_name(two: Any) -> None:
    assert two[1]["broken"] == "OSError: rank 1 of 2: this sample is damaged"
    assert two[0]["broken"].startswith("RankFailed: ")
    assert "rank 1: this sample is damaged" in two[0]["broken"]


def test_an_error_after_the_last_step_stops_the_other_ranks_too(four: Any) -> None:
    assert four[2]["late"] == "RuntimeError: rank 2 of 4: no room for a picture"
    for rank in (0, 1, 3):
        assert four[rank]["late"].startswith("RankFailed: ")
        assert "rank 2: no room for a picture" in four[rank]["late"]


def test_mistakes_that_all_ranks_see_are_told_alike_by_all(two: Any) -> None:
    exists, seen, another, sampler, seeds = ([found[key] for found in two] for key in WORDS)
    for told in exists:
        assert told.startswith("ValueError: ")
        assert told.endswith("exists already: resume from it, or choose another checkpoint file")
    for told in seen:
        assert "1 of 2 ranks see " in told
        assert "put it on a disc that all machines share" in told
    for told in another:
        assert "is not the same file on all ranks" in told
    for told in sampler:
        assert "DistributedSampler" in told
        assert "leave it out" in told
    for told in seeds:
        assert told == "ValueError: the ranks were given different data, seeds or batch sizes; give all the same"


WORDS = ("exists", "seen by one", "another", "sampler", "seeds")


def test_one_process_alone_agrees_with_itself() -> None:
    together = Together(learner(spread=True))
    assert (together.size, together.first, together.spread) == (1, True, None)
    assert together.total(2.5, 1) == [2.5, 1]
    together.demand_same(7, "never raised")
    with pytest.raises(KeyError, match="itself"), together.telling():
        raise KeyError("itself")
    with pytest.raises(OSError, match=r"^this sample is damaged$"):
        fit(learner(), Broken(*double()), epochs=1, batch_size=9)
