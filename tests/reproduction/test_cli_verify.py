"""`python -m reproduction verify`: claims in the order of their numbers, over all figures."""

from pathlib import Path

from reproduction import folders
from reproduction.claims import NOT_RUN, VERDICTS
from reproduction.commands.verify import STYLES, summary, verdicts

DECLARED = """
from reproduction import Claim, Figure, Run, Statement
def judge(results):
    raise KeyError
CLAIMS = [Claim(c, "text", "paper", [Statement("part", "criterion", judge)]) for c in {ids}]
FIGURES = [Figure("{name}", "t", [Run("adam", "mlp-1x4")], ["epochs"], 1, CLAIMS)]
"""
ROOT = Path(__file__).resolve().parents[2]


def test_claims_of_all_figures_stand_in_one_order(tmp_path: Path) -> None:
    for name, ids in (("fig2", ["C10", "C3"]), ("fig1", ["C2"])):
        (tmp_path / f"{name}.py").write_text(DECLARED.format(name=name, ids=ids))
    rows = verdicts(tmp_path, tmp_path / "none")
    assert [row["claim"] for row in rows] == ["C2", "C3", "C10"]
    remedies = [row["statements"][0]["because"] for row in rows]
    assert remedies == [f"make its runs with python -m reproduction figure fig{n}" for n in (1, 2, 2)]


def test_every_claim_has_been_judged_and_the_pages_quote_the_files() -> None:
    page = (ROOT / "reproduction/pages/claims.md").read_text()
    details = "".join(path.read_text() for path in (ROOT / "reproduction/pages").glob("paper-*.md"))
    rows = verdicts(folders.FIGURES, folders.RESULTS)
    assert summary(rows) in page
    for row in rows:
        assert row["verdict"] != NOT_RUN, row["claim"]
        line = f"| {row['claim']} | {row['text']} | {row['paper']} | **{row['verdict']}** |"
        assert line in page, f"{row['claim']}: run `python -m reproduction tables`"
        for each in row["statements"]:
            assert all(each[key] in details for key in ("text", "criterion", "ours", "because")), row["claim"]


def test_no_verdict_is_shown_in_red() -> None:
    assert set(STYLES) == {*VERDICTS, NOT_RUN}
    assert not any("red" in style.split() for style in STYLES.values())
    assert len(set(STYLES.values())) == len(STYLES), "verdicts can be told from each other"
