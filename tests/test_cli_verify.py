"""`altmin verify`: claims in the order of their numbers, over all figures."""

from pathlib import Path

from altmin.cli.verify import verdicts
from altmin.paper.reproduce import folders

DECLARED = """
from altmin.paper.reproduce import Claim, Figure, Run
def judge(results):
    raise KeyError
CLAIMS = [Claim(c, "text", "paper", judge) for c in {ids}]
FIGURE = Figure("{name}", "t", [Run("adam", "mlp-1x4")], ["epochs"], 1, CLAIMS)
"""


def test_claims_of_all_figures_stand_in_one_order(tmp_path: Path) -> None:
    for name, ids in (("fig2", ["C10", "C3"]), ("fig1", ["C2"])):
        (tmp_path / f"{name}.py").write_text(DECLARED.format(name=name, ids=ids))
    rows = verdicts(tmp_path, tmp_path / "none")
    assert [row["claim"] for row in rows] == ["C2", "C3", "C10"]
    assert [row["verdict"] for row in rows] == [f"not run: altmin reproduce fig{n}" for n in (1, 2, 2)]


def test_every_claim_has_been_judged_and_the_page_quotes_the_files() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs/reproduction.md").read_text()
    for row in verdicts(folders.FIGURES, folders.RESULTS):
        assert row["verdict"].startswith(("holds", "does not hold, because ")), row["claim"]
        line = f"| {row['claim']} | {row['text']} | {row['paper']} | {row['ours']} | {row['verdict']} |"
        assert line in page, f"{row['claim']}: run experiments/reproduction.py table"
