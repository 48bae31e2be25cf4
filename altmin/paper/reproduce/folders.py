"""Where a clone of the repository keeps the figures and what was found."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FIGURES = ROOT / "experiments/figures"
RESULTS = ROOT / "benchmarks/reproduce"


def history(results: Path, figure: str) -> Path:
    """The file of all configurations that were tried for a figure."""
    return results / "search" / f"{figure}.jsonl"
