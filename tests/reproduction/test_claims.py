"""Claims are judged by committed results alone, and the page has them all."""

from typing import Any

import pytest

from reproduction import Claim, Compared, Figure, Results, Run, Statement, compared, over, statement
from reproduction.claims import judged, merged, summary
from reproduction.figure import load, verdicts

VERDICTS = {
    **dict.fromkeys([f"C{n}" for n in range(1, 20)], "not reproduced"),
    **dict.fromkeys(("C1", "C3", "C7", "C18"), "reproduced"),
    **dict.fromkeys(("C2", "C13"), "undecided"),
    "C16": "refuted",
}
REACHED = {"C2", "C4", "C10", "C12", "C15", "C19"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return verdicts()


def test_the_committed_results_give_these_verdicts(rows: list[dict[str, Any]]) -> None:
    assert {row["claim"]: row["printed"] for row in rows} == VERDICTS
    assert {row["claim"] for row in rows if row["ours"] == "reached"} == REACHED
    assert [row["claim"] for row in rows] == [f"C{n}" for n in range(1, 20)], "in the order of their numbers"
    assert all(
        each["because"] for row in rows for each in row["statements"] if each["printed"] not in ("", "reproduced")
    )


@pytest.mark.parametrize("name, figure", load().items())
def test_committed_rows_belong_to_declared_runs(name: str, figure: Figure) -> None:
    configs, results = [run.config() for run in figure.runs], figure.results
    assert all(row["config"] in configs for row in results.rows)
    missing = sum(bool(results.missing(run)) for run in figure.runs)
    if name not in ("learning", "fig5"):  # larger tasks, and the whole file of HIGGS
        assert missing <= (0 if figure.axes else 1)  # a seed of one task, which no table needs


ONE = Run("adam", "mlp-1x4", seeds=1)
LEARNT = Results([{"config": ONE.config(), "seed": 0, "batches": [], "epochs": [{"epoch": 1, "test_accuracy": 0.9}]}])


def claim(*levels: float) -> Claim:
    """Reproduced from the level on, by ours from half of it on, undecided from a quarter of it on."""

    def reaches(level: float) -> Statement:
        return statement(
            f"it reaches {level}",
            f"the accuracy is at least {level}",
            lambda results: [compared(results, [ONE], "a net", epoch=1)],
            lambda found: found["adam"] >= level,
            lambda found: found["adam"] >= level / 2,
            lambda found: f"it has {found['adam']}",
            lambda found: found["adam"] >= level / 4,
        )

    return Claim("C3", "it learns", "0.98", [reaches(level) for level in levels])


def test_every_statement_has_its_criterion_numbers_verdict_and_reason() -> None:
    row = judged(claim(0.8, 0.95), LEARNT, "make it")
    assert (row["claim"], row["text"], row["paper"]) == ("C3", "it learns", "0.98")
    assert (row["printed"], row["ours"]) == ("undecided", "reached")
    good, better = row["statements"]
    assert good == {
        **{"text": "it reaches 0.8", "criterion": "the accuracy is at least 0.8"},
        **{"numbers": "a net: adam 0.900", "printed": "reproduced", "ours": "reached", "because": "", "spread": 0.0},
    }
    assert (better["printed"], better["because"]) == ("undecided", "it has 0.9")


def test_a_claim_has_the_verdict_of_the_statement_that_agrees_least_over_all_figures() -> None:
    good, bad, missing = (
        judged(claim(level), results, "make it")
        for level, results in ((0.8, LEARNT), (4.0, LEARNT), (0.8, Results([])))
    )
    assert missing["statements"][0] == {**missing["statements"][0], "printed": "not run", "ours": ""}
    assert "make it" in missing["statements"][0]["because"]
    both = merged([good, bad])
    assert (both["printed"], both["ours"]) == ("not reproduced", "not reached")
    assert both["statements"] == [*good["statements"], *bad["statements"]]
    assert merged([bad, missing])["printed"] == "not run"
    counts = "1 reproduced, 0 undecided, 1 not reproduced, 0 refuted"
    assert summary([good, bad]) == f"Of 2 claims as printed: {counts}. With our step: 1 of 2 reached."


RUNS = [Run("adam", "mlp-1x4", seeds=2, eval_batches=(1, 2)), Run("sgd", "mlp-1x4", seeds=1, label="plain")]


def seed_of(run: Run, seed: int, batches: dict[int, float], end: float) -> dict[str, Any]:
    points = [{"batch": n, "test_accuracy": a} for n, a in batches.items()]
    return {"config": run.config(), "seed": seed, "batches": points, "epochs": [{"epoch": 1, "test_accuracy": end}]}


MADE = Results(
    [
        seed_of(RUNS[0], 0, {1: 0.1, 2: 0.3}, 0.5),
        seed_of(RUNS[0], 1, {1: 0.3, 2: 0.7}, 0.7),
        seed_of(RUNS[1], 0, {}, 0.4),
    ]
)


def test_runs_are_compared_by_name_with_mean_and_spread() -> None:
    found = compared(MADE, RUNS, "a net", epoch=-1)
    assert (found["adam"], found["plain"]) == (pytest.approx(0.6), 0.4)
    assert str(found) == "a net: adam 0.600 ± 0.141, plain 0.400"
    assert found.spread == pytest.approx(2**0.5 * 0.1), "of two values 0.2 apart; one seed has none"
    assert over(MADE, RUNS[:1], "a net", (1, 2)).values == {"adam": pytest.approx([0.2, 0.5])}
    with pytest.raises(KeyError):
        compared(MADE, [Run("adam", "mlp-2x4")], "a net", epoch=-1)


GROUP = Compared("net", {"adam": [0.5, 0.7], "sgd": [0.4, 0.4], "am": [0.62, 0.62]})


def test_behind_and_ahead_are_by_more_than_twice_the_standard_error_of_the_difference() -> None:
    assert GROUP.margin("adam", "sgd") == pytest.approx(2 * (0.02 / 2) ** 0.5), "variance 0.02 over two seeds, and 0"
    assert GROUP.margin("sgd", "am") == 0
    assert GROUP.margin("sgd", "am", least=0.01) == 0.01
    assert GROUP.behind("sgd", ("adam", "am")) == ["am"], "0.2 behind Adam is its margin"
    assert GROUP.behind("sgd", ("am",), least=0.3) == []
    assert GROUP.not_ahead("am", ("adam", "sgd")) == ["adam"]
    assert (GROUP.level(), GROUP.ahead(), GROUP.above()) == (True, False, False), "of the first run"
    last = Compared("net", dict(reversed(GROUP.values.items())))
    assert (last.level(), last.ahead(), last.above()) == (True, False, True)
