"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in experiments/figures/."""

from altmin.reproduce.claims import Claim, Finding
from altmin.reproduce.figure import Figure, Mark, load
from altmin.reproduce.results import Results
from altmin.reproduce.run import Run
from altmin.reproduce.search import Between, Search
from altmin.reproduce.settings import settings

__all__ = ["Between", "Claim", "Figure", "Finding", "Mark", "Results", "Run", "Search", "load", "settings"]
