"""A claim is judged by results alone; where they are missing it says how to make them."""

from altmin.paper.reproduce.claims import Claim, Finding, judged, merged, order
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run

RUN = Run("adam", "mlp-1x4", seeds=1)


def claim(level: float) -> Claim:
    def judge(results: Results) -> Finding:
        (value,) = results.values(RUN, epoch=1)
        return Finding(f"{value:.2f}", value >= level, 0.01, f"{value:.2f} is below {level}")

    return Claim("C3", "it reaches 0.98", "0.98", judge)


def test_a_claim_holds_or_does_not_with_its_reason() -> None:
    made = Results([{"config": RUN.config(), "seed": 0, "batches": [], "epochs": [{"epoch": 1, "test_accuracy": 0.9}]}])
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
