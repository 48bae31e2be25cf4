"""An LSTM that reads images row by row."""

import torch
from torch import nn

import altmin


class Rows(nn.Module):
    def __init__(self, inputs=28, hidden=64, classes=10):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        states, _ = self.lstm(x)
        return self.head(states[:, -1])


def digits(split, n):
    x, y = altmin.data.load("mnist-rows", split)
    return x[:n], y[:n]


def main(seed=0):
    torch.manual_seed(seed)
    am = altmin.AltMin(Rows(), weights=altmin.LocalAdam(lr=0.005))
    history = altmin.fit(am, digits("train", 4000), digits("test", 2000), epochs=3, batch_size=50, schedule="constant")
    return history.epochs[-1]["test_accuracy"]


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
