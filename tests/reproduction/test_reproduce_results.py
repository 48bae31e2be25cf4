"""Results are kept by run and seed, compared by name, and claims judged by them alone."""

from pathlib import Path
from typing import Any

import pytest

from reproduction.claims import (
    Claim,
    Compared,
    Finding,
    compared,
    counts,
    finding,
    judged,
    merged,
    order,
    over,
    statement,
)
from reproduction.results import Results, deviation, words
from reproduction.run import Run

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


def claim(*levels: float) -> Claim:
    """Reproduced from the first level on, exceeded from half of it on."""

    def of(level: float) -> Any:
        @statement(f"it reaches {level}", f"the accuracy is at least {level}")
        def judge(results: Results) -> Finding:
            (value,) = results.values(ONE, epoch=1)
            verdict = "reproduced" if value >= level else "exceeded" if value >= level / 2 else "differs"
            return Finding(f"{value:.2f}", verdict, "" if value >= level else f"it is below {level}", 0.01)

        return judge

    return Claim("C3", "it learns", "0.98", [of(level) for level in levels])


LEARNT = Results([{"config": ONE.config(), "seed": 0, "batches": [], "epochs": [{"epoch": 1, "test_accuracy": 0.9}]}])


def test_every_statement_has_its_criterion_numbers_verdict_and_reason() -> None:
    row = judged(claim(0.8, 0.95), LEARNT, "python -m reproduction figure fig2")
    assert (row["claim"], row["text"], row["paper"]) == ("C3", "it learns", "0.98")
    same = {"ours": "0.90", "spread": 0.01}
    assert row["statements"] == [
        {
            "text": "it reaches 0.8",
            "criterion": "the accuracy is at least 0.8",
            **same,
            "verdict": "reproduced",
            "because": "",
        },
        {
            "text": "it reaches 0.95",
            "criterion": "the accuracy is at least 0.95",
            **same,
            "verdict": "exceeded",
            "because": "it is below 0.95",
        },
    ]


@pytest.mark.parametrize(
    "levels, verdict",
    [((0.8,), "reproduced"), ((0.8, 0.95), "exceeded"), ((3.0, 0.95, 0.8), "differs")],
)
def test_a_claim_has_the_verdict_of_the_statement_that_agrees_least(levels: tuple[float, ...], verdict: str) -> None:
    assert judged(claim(*levels), LEARNT, "python -m reproduction figure fig2")["verdict"] == verdict


def test_without_runs_the_verdict_says_how_to_make_them() -> None:
    row = judged(claim(0.8), Results([]), "python -m reproduction figure fig2")
    assert row["verdict"] == row["statements"][0]["verdict"] == "not run"
    assert row["statements"][0]["because"] == "make its runs with python -m reproduction figure fig2"


@pytest.mark.parametrize("verdict", ["differs", "refuted"])
def test_a_verdict_against_the_paper_needs_a_reason(verdict: str) -> None:
    with pytest.raises(ValueError, match=f"the verdict '{verdict}' needs a reason"):
        Finding("0.5", verdict)
    assert Finding("0.5", verdict, "so").because == "so"
    with pytest.raises(ValueError, match="a verdict is one of reproduced, exceeded, differs, refuted, given 'fails'"):
        Finding("0.5", "fails")


def test_claims_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["C10", "C1", "C9"], key=order) == ["C1", "C9", "C10"]


def test_a_claim_of_two_figures_has_the_statements_of_both() -> None:
    good, bad, missing = (judged(claim(level), results, "make") for level, results in CASES)
    assert merged([good]) == good
    both = merged([good, bad])
    assert (both["verdict"], both["statements"]) == ("differs", [*good["statements"], *bad["statements"]])
    assert merged([bad, missing])["verdict"] == "not run"
    assert counts([good, bad, both]) == {"reproduced": 1, "exceeded": 0, "differs": 2, "refuted": 0}
    assert counts([missing])["not run"] == 1


CASES = [(0.8, LEARNT), (3.0, LEARNT), (0.8, Results([]))]
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


GROUP = Compared("net", {"adam": [0.5, 0.7], "sgd": [0.4, 0.4], "am": [0.62, 0.62]})


def test_the_margin_of_two_means_is_twice_the_standard_error_of_their_difference() -> None:
    assert GROUP.margin("adam", "sgd") == pytest.approx(2 * (0.02 / 2) ** 0.5), "variance 0.02 over two seeds, and 0"
    assert GROUP.margin("sgd", "am") == 0
    assert GROUP.margin("sgd", "am", least=0.01) == 0.01


def test_a_run_is_behind_or_ahead_of_others_by_more_than_the_margin_only() -> None:
    assert GROUP.behind("sgd", ("adam", "am")) == ["am"], "0.2 behind Adam is its margin"
    assert GROUP.behind("sgd", ("am",), least=0.3) == []
    assert GROUP.not_ahead("am", ("adam", "sgd")) == ["adam"]


def test_a_finding_is_reproduced_exceeded_or_differs_with_its_reason() -> None:
    found = finding(GROUP, reproduced=True, exceeded=True, because="why", more="by the way")
    assert (found.verdict, found.because) == ("reproduced", "")
    assert found.ours == "net: adam 0.600 ± 0.141, sgd 0.400 ± 0.000, am 0.620 ± 0.000; by the way"
    assert found.spread == pytest.approx(2**0.5 * 0.1)
    assert finding([GROUP], reproduced=False, exceeded=True, because="why").verdict == "exceeded"
    against = finding([GROUP, GROUP], reproduced=False, because="why")
    assert (against.verdict, against.because) == ("differs", "why")
