"""Running a method: epochs, evaluation, learning-rate schedule, checkpoints. How it learns is its affair."""

from altmin.training.ensemble import EnsembleProgress, MemberHistory, fit_ensemble
from altmin.training.evaluate import accuracy, mean_loss
from altmin.training.loop import History
from altmin.training.on_device import train_on_device
from altmin.training.run import Progress, fit
from altmin.training.samples import batches_per_epoch, epoch_order
from altmin.training.schedule import SCHEDULES

__all__ = [
    "SCHEDULES",
    "EnsembleProgress",
    "History",
    "MemberHistory",
    "Progress",
    "accuracy",
    "batches_per_epoch",
    "epoch_order",
    "fit",
    "fit_ensemble",
    "mean_loss",
    "train_on_device",
]
