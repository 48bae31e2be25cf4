"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in altmin/paper/figures/."""

from altmin.paper.reproduce.claims import Claim, Compared, Finding, Statement, compared, finding, over, statement
from altmin.paper.reproduce.entries import Entry, runs_of
from altmin.paper.reproduce.figure import Figure, Mark
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run
from altmin.paper.reproduce.search import Between, Search

__all__ = [
    "Between",
    "Claim",
    "Compared",
    "Entry",
    "Figure",
    "Finding",
    "Mark",
    "Results",
    "Run",
    "Search",
    "Statement",
    "compared",
    "finding",
    "over",
    "runs_of",
    "statement",
]
