"""Running a method: epochs, evaluation, learning-rate schedule, checkpoints. How it learns is its affair."""

from altmin.fit.on_device import train_on_device
from altmin.fit.run import History, Progress, fit
from altmin.fit.samples import accuracy, batches_per_epoch, epoch_order
from altmin.fit.schedule import SCHEDULES

__all__ = ["SCHEDULES", "History", "Progress", "accuracy", "batches_per_epoch", "epoch_order", "fit", "train_on_device"]
