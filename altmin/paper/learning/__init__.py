"""How soon nets learn: tasks, the runs on them, and how their rates are chosen."""

from altmin.paper.learning.learner import Learner
from altmin.paper.learning.tasks import Opponent, RateSearch, Task, learners

__all__ = ["Learner", "Opponent", "RateSearch", "Task", "learners"]
