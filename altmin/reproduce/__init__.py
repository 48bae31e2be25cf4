"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in experiments/figures/."""

from altmin.reproduce.claims import Claim, Finding
from altmin.reproduce.figure import Figure, Mark, load
from altmin.reproduce.results import Results
from altmin.reproduce.run import Run

__all__ = ["Claim", "Figure", "Finding", "Mark", "Results", "Run", "load"]
