"""Where figures are declared, and where what was found is kept."""

from pathlib import Path

PAPER = Path(__file__).resolve().parents[1]
FIGURES = PAPER / "figures"
CHOSEN = FIGURES / "settings.jsonl"
"""Of every search that is committed the best configuration, which an installed package has without the history."""
COMMITTED = PAPER.parents[1] / "benchmarks/reproduce"
RESULTS = COMMITTED if COMMITTED.is_dir() else Path("reproduce")
"""In a clone beside what is committed, elsewhere in the current folder."""


def history(results: Path, figure: str) -> Path:
    """The file of all configurations that were tried for a figure."""
    return results / "search" / f"{figure}.jsonl"
