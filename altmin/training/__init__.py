"""Running a method: data, epochs, metrics, callbacks, learning rates, checkpoints. It is independent of how the method
learns."""

from altmin.training.callbacks import EMA, BestWeights, EachBatch, EarlyStopping
from altmin.training.evaluate import METRICS, accuracy, mean_loss
from altmin.training.loop import History, MemberHistory, Progress
from altmin.training.reporters import ProgressBar
from altmin.training.run import fit, fit_ensemble
from altmin.training.samples import batches_per_epoch, epoch_order
from altmin.training.schedule import SCHEDULES

__all__ = [
    "EMA",
    "METRICS",
    "SCHEDULES",
    "BestWeights",
    "EachBatch",
    "EarlyStopping",
    "History",
    "MemberHistory",
    "Progress",
    "ProgressBar",
    "accuracy",
    "batches_per_epoch",
    "epoch_order",
    "fit",
    "fit_ensemble",
    "mean_loss",
]
