"""Continual learning: tasks one after the other, what learns them, and how much of the earlier ones is forgotten."""

from altmin.continual.learners import Learner, create, learner, names
from altmin.continual.tasks import Task, average_accuracy, average_so_far, forgetting, permuted, run, split

__all__ = [
    "Learner",
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
