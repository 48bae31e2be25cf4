"""The paper's figures as data: which runs, what is drawn, and which claims they bear on; and all else that is measured.
A module of figures/ declares figures in a list FIGURES."""

from reproduction.claims import Claim, Compared, Finding, Statement, compared, over, statement
from reproduction.figure import Figure, Mark
from reproduction.results import Results, Row, Setting, Tick
from reproduction.run import Run
from reproduction.search import Between, Entry, Search, runs_of
