"""Results are kept by run and seed, compared by name, and claims judged by them alone."""

from pathlib import Path
from typing import Any

import pytest

from altmin.paper.reproduce.claims import Claim, Compared, Finding, compared, finding, judged, merged, order, over
from altmin.paper.reproduce.results import Results, deviation, words
from altmin.paper.reproduce.run import Run

RUN = Run("adam", "mlp-1x4", epochs=2, seeds=2, eval_batches=(3,))


def row(seed: int, first: float, last: float, run: Run = RUN) -> dict[str, Any]:
    epochs = [{"epoch": n, "train_loss": 1.0, "test_accuracy": a} for n, a in ((1, first), (2, last))]
    return {
        "config": run.config(),
        "seed": seed,
        "batches": [{"batch": 3, "test_accuracy": first / 2}],
        "epochs": epochs,
    }


def test_values_are_those_of_every_seed_at_one_place() -> None:
    results = Results([row(1, 0.6, 0.8), row(0, 0.5, 0.7), row(0, 0.1, 0.1, Run("sgd", "mlp-1x4"))])
    assert results.values(RUN, epoch=1) == [0.5, 0.6]
    assert results.values(RUN, epoch=-1) == [0.7, 0.8]
    assert results.values(RUN, batch=3) == [0.25, 0.3]


def test_a_run_lacks_the_seeds_that_were_not_made() -> None:
    results = Results([row(1, 0.6, 0.8)])
    assert results.missing(RUN) == [0]
    assert results.missing(Run("sgd", "mlp-1x4", seeds=2)) == [0, 1]
    with pytest.raises(KeyError):
        results.values(RUN, epoch=1)


def test_a_seed_that_diverged_before_counts_as_nothing_reached() -> None:
    results = Results([row(0, 0.5, 0.7), {**row(1, 0.5, 0.6), "epochs": [], "diverged": "the loss"}])
    assert results.values(RUN, epoch=-1) == [0.7, 0.0]


def test_what_is_added_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "fig.jsonl"
    results = Results.read(path)
    results.add([row(0, 0.5, 0.7)])
    results.add([row(1, 0.6, 0.8)])
    assert Results.read(path).rows == results.rows
    assert not Results.read(path).missing(RUN)
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(ValueError, match=r"line 3 of .*fig\.jsonl is no result; delete it"):
        Results.read(path)


def test_two_that_add_to_one_file_keep_each_others_rows_and_a_seed_made_twice_counts_once(tmp_path: Path) -> None:
    one, other = (Results.read(tmp_path / "fig.jsonl") for _ in range(2))
    one.add([row(0, 0.5, 0.7)])
    other.add([row(0, 0.1, 0.1)])  # made at the same time
    assert other.missing(RUN) == [1]
    other.add([row(1, 0.6, 0.8)])
    one.add([row(2, 0.9, 0.9)])
    assert one.rows == Results.read(tmp_path / "fig.jsonl").rows
    assert [each["seed"] for each in one.rows] == [0, 0, 1, 2]
    assert one.values(RUN, epoch=-1) == [0.7, 0.8]


def test_words_have_the_spread_of_several_seeds() -> None:
    assert words([0.25]) == "0.250"
    assert words([0.2, 0.4]) == "0.300 ± 0.141"
    assert deviation([0.2]) == 0.0


ONE = Run("adam", "mlp-1x4", seeds=1)


def claim(level: float) -> Claim:
    def judge(results: Results) -> Finding:
        (value,) = results.values(ONE, epoch=1)
        return Finding(f"{value:.2f}", value >= level, 0.01, f"{value:.2f} is below {level}")

    return Claim("C3", "it reaches 0.98", "0.98", judge)


def test_a_claim_holds_or_does_not_with_its_reason() -> None:
    made = Results([{"config": ONE.config(), "seed": 0, "batches": [], "epochs": [{"epoch": 1, "test_accuracy": 0.9}]}])
    held = judged(claim(0.8), made, "altmin reproduce fig2")
    assert held == {
        "claim": "C3",
        "text": "it reaches 0.98",
        "paper": "0.98",
        "ours": "0.90",
        "spread": 0.01,
        "verdict": "holds",
    }
    failed = judged(claim(0.95), made, "altmin reproduce fig2")
    assert failed["verdict"] == "does not hold, because 0.90 is below 0.95"


def test_without_runs_the_verdict_says_how_to_make_them() -> None:
    row = judged(claim(0.8), Results([]), "altmin reproduce fig2")
    assert (row["ours"], row["spread"], row["verdict"]) == ("", None, "not run: altmin reproduce fig2")


def test_claims_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["C10", "C1", "C9"], key=order) == ["C1", "C9", "C10"]


def test_a_claim_of_two_figures_holds_if_it_does_in_both() -> None:
    a = {"claim": "C1", "text": "t", "paper": "p", "ours": "one", "spread": 0.1, "verdict": "holds"}
    b = {**a, "ours": "two", "spread": 0.2}
    assert merged([a]) == a
    assert merged([a, b]) == {**a, "ours": "one; two", "spread": 0.2}
    failed = merged([a, {**b, "verdict": "does not hold, because no"}])
    assert failed["verdict"] == "does not hold, because no"
    assert merged([{**a, "spread": None}, {**b, "spread": None}])["spread"] is None


COMPARED = [Run("adam", "mlp-1x4", seeds=2, eval_batches=(1, 2)), Run("sgd", "mlp-1x4", seeds=1, label="plain")]


def seed_of(run: Run, seed: int, batches: dict[int, float], end: float) -> dict[str, Any]:
    return {
        "config": run.config(),
        "seed": seed,
        "batches": [{"batch": n, "test_accuracy": a} for n, a in batches.items()],
        "epochs": [{"epoch": 1, "test_accuracy": end}],
    }


MADE = Results(
    [
        seed_of(COMPARED[0], 0, {1: 0.1, 2: 0.3}, 0.5),
        seed_of(COMPARED[0], 1, {1: 0.3, 2: 0.7}, 0.7),
        seed_of(COMPARED[1], 0, {}, 0.4),
    ]
)


def test_runs_are_compared_by_name_after_an_epoch_with_mean_and_spread() -> None:
    found = compared(MADE, COMPARED, "a net", epoch=-1)
    assert (found["adam"], found["plain"]) == (pytest.approx(0.6), 0.4)
    assert str(found) == "a net: adam 0.600 ± 0.141, plain 0.400"
    assert found.spread == pytest.approx(2**0.5 * 0.1), "of two values 0.2 apart; one seed has none"


def test_a_mean_over_batches_is_taken_of_every_seed() -> None:
    assert over(MADE, COMPARED[:1], "a net", (1, 2)).values == {"adam": pytest.approx([0.2, 0.5])}


def test_a_run_that_was_not_made_cannot_be_compared() -> None:
    with pytest.raises(KeyError):
        compared(MADE, [Run("adam", "mlp-2x4")], "a net", epoch=-1)


def test_a_claim_holds_if_nothing_speaks_against_it_and_else_says_all_that_does() -> None:
    group = Compared("net", {"adam": [0.5]})
    held = finding([group], {"too low": False}, "by the way")
    assert (held.holds, held.ours, held.spread) == (True, "net: adam 0.500; by the way", 0.0)
    failed = finding([group, group], {"too low": True, "too high": False, "too late": True})
    assert (failed.holds, failed.because) == (False, "too low and too late")
