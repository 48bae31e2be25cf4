"""Running a method: epochs, evaluation, learning-rate schedule, checkpoints. How it learns is its affair."""

from altmin.fit.ensemble import EnsembleProgress, MemberHistory, fit_ensemble
from altmin.fit.evaluate import accuracy, mean_loss
from altmin.fit.loop import History
from altmin.fit.on_device import train_on_device
from altmin.fit.run import Progress, fit
from altmin.fit.samples import batches_per_epoch, epoch_order
from altmin.fit.schedule import SCHEDULES

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
