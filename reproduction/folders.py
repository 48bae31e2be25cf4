"""Where figures are declared, and where their results are stored."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "figures"
CHOSEN = FIGURES / "settings.jsonl"
"""The best configuration of every committed search."""
RESULTS = HERE / "results"


def history(results: Path, figure: str) -> Path:
    """The file of all configurations that were tried for a figure."""
    return results / "search" / f"{figure}.jsonl"
