"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in reproduction/figures/."""

from reproduction.claims import Claim, Compared, Finding, Statement, compared, finding, over, statement
from reproduction.entries import Entry, runs_of
from reproduction.figure import Figure, Mark
from reproduction.results import Results
from reproduction.run import Run
from reproduction.search import Between, Search

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
