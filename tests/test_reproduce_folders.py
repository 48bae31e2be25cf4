"""The folders are those of this repository."""

from pathlib import Path

from altmin.paper.reproduce.folders import FIGURES, RESULTS, history

ROOT = Path(__file__).resolve().parent.parent


def test_figures_results_and_histories_lie_in_the_repository() -> None:
    assert (FIGURES / "fig1.py").is_file()
    assert ROOT / "benchmarks" / "reproduce" == RESULTS
    assert history(RESULTS, "fig1") == ROOT / "benchmarks/reproduce/search/fig1.jsonl"
