"""Tasks in sequence, none of which is seen again: a CNN learns the digits two by two."""

import torch
from torch import nn

import altmin
from altmin import continual


def net():
    features = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


def tasks():
    (x, y), (x_test, y_test) = altmin.data.load("mnist", "train"), altmin.data.load("mnist", "test")
    return list(continual.split((x[:5000], y[:5000]), (x_test[:2000], y_test[:2000])))


def main(seed=0):
    torch.manual_seed(seed)
    learner = continual.create("remembering", net(), rate=0.5)
    accuracies = continual.run(learner, tasks(), batch_size=50, seed=seed)
    return continual.average_accuracy(accuracies)


if __name__ == "__main__":
    print(f"accuracy of all digits after the last task {main():.3f}")
