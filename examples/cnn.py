"""A CNN of one's own with a DataLoader and a scheduler, interrupted by Ctrl-C and resumed from its checkpoint."""

import signal
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import altmin


def net():
    features = [nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(256, 10))


def digits(split, n, **options):
    x, y = altmin.data.load("mnist", split)
    return DataLoader(TensorDataset(x[:n], y[:n]), batch_size=50, **options)


def main(seed=0):
    torch.manual_seed(seed)
    data = digits("train", 3000, shuffle=True), digits("test", 2000)
    with tempfile.TemporaryDirectory() as folder:
        run = {"epochs": 4, "scheduler": partial(CosineAnnealingLR, T_max=4), "checkpoint": Path(folder, "run.altmin")}
        with suppress(KeyboardInterrupt):  # Ctrl-C after two epochs; here the program presses it
            am = altmin.AltMin(net(), weights=altmin.LocalAdam(lr=0.003))
            altmin.fit(am, *data, **run, callbacks=lambda run: run.epoch == 2 and signal.raise_signal(signal.SIGINT))
        am = altmin.AltMin(net(), weights=altmin.LocalAdam(lr=0.003))  # as in a new process
        return altmin.fit(am, *data, **run, resume=True).epochs[-1]["test_accuracy"]


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
