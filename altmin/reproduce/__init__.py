"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in experiments/figures/."""

from altmin.reproduce.claims import Claim, Finding
from altmin.reproduce.figure import Figure, Mark, Run, load
from altmin.reproduce.results import Results

__all__ = ["Claim", "Figure", "Finding", "Mark", "Results", "Run", "load"]
