"""How soon nets learn: tasks, the runs on them, and how their rates are chosen."""

from reproduction.learning.learner import Learner
from reproduction.learning.tasks import Opponent, RateSearch, Task, learners, tables
