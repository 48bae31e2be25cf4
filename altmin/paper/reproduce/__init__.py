"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in altmin/paper/figures/."""

from altmin.paper.reproduce.claims import Claim, Finding, claim
from altmin.paper.reproduce.entries import Entry, runs_of
from altmin.paper.reproduce.figure import Figure, Mark, load
from altmin.paper.reproduce.judging import Compared, compared, finding, on_each_net, over
from altmin.paper.reproduce.parallel import WeightsInParallel
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run
from altmin.paper.reproduce.search import Between, Search
from altmin.paper.reproduce.settings import settings
from altmin.paper.reproduce.theorem import TheoremCurve
from altmin.paper.reproduce.timing import Timing, seconds_per_epoch, unevenness

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
    "TheoremCurve",
    "Timing",
    "WeightsInParallel",
    "claim",
    "compared",
    "finding",
    "load",
    "on_each_net",
    "over",
    "runs_of",
    "seconds_per_epoch",
    "settings",
    "unevenness",
]
