"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in altmin/paper/figures/."""

from altmin.paper.reproduce.claims import Finding, claim
from altmin.paper.reproduce.entries import Entry, runs_of
from altmin.paper.reproduce.figure import Figure, Mark
from altmin.paper.reproduce.judging import Compared, compared, finding, on_each_net, over
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run
from altmin.paper.reproduce.search import Between
from altmin.paper.reproduce.timing import Timing, seconds_per_epoch, unevenness

__all__ = [
    "Between",
    "Compared",
    "Entry",
    "Figure",
    "Finding",
    "Mark",
    "Results",
    "Run",
    "Timing",
    "claim",
    "compared",
    "finding",
    "on_each_net",
    "over",
    "runs_of",
    "seconds_per_epoch",
    "unevenness",
]
