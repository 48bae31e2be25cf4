"""Continual learning: tasks one after the other, what learns them, and how much of the earlier ones is forgotten."""

from altmin.continual.keeping import learner
from altmin.continual.learners import Learner, create, names
from altmin.continual.measures import average_accuracy, average_so_far, forgetting
from altmin.continual.run import Stream, run
from altmin.continual.tasks import Task, permuted, split

__all__ = [
    "Learner",
    "Stream",
    "Task",
    "average_accuracy",
    "average_so_far",
    "create",
    "forgetting",
    "learner",
    "names",
    "permuted",
    "run",
    "split",
]
