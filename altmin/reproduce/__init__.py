"""The paper's figures as data: which runs, what is drawn, and which claims they bear on. The figures themselves are
declared one a file in experiments/figures/."""

from altmin.reproduce.claims import Claim, Finding
from altmin.reproduce.entries import Entry, runs_of
from altmin.reproduce.figure import Figure, Mark, load
from altmin.reproduce.judging import Compared, compared, finding, over
from altmin.reproduce.parallel import WeightsInParallel
from altmin.reproduce.results import Results
from altmin.reproduce.run import Run
from altmin.reproduce.search import Between, Search
from altmin.reproduce.settings import settings
from altmin.reproduce.theorem import TheoremCurve
from altmin.reproduce.timing import Timing, seconds_per_epoch, unevenness

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
    "compared",
    "finding",
    "load",
    "over",
    "runs_of",
    "seconds_per_epoch",
    "settings",
    "unevenness",
]
