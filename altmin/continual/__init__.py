"""Continual learning: tasks one after the other, what learns them, and how much of the earlier ones is forgotten."""

from altmin.continual.base import Learner
from altmin.continual.learners import create, learner, names
from altmin.continual.run import Stream, run
from altmin.continual.tasks import Task, average_accuracy, average_so_far, forgetting, permuted, split

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
