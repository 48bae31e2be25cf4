"""A model of text whose output layer has the weights of its embedding."""

import torch
from torch import nn
from torch.nn.functional import linear

import altmin

CONTEXT = 8


class Text(nn.Module):
    """The next character after eight others."""

    def __init__(self, characters=65, width=32, hidden=128):
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.hidden, self.last = nn.Linear(CONTEXT * width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = torch.relu(self.hidden(self.embedding(x).flatten(1)))
        return linear(self.last(x), self.embedding.weight)


def shakespeare(split, n):
    """Windows of eight characters, and the character after each."""
    tokens, _ = altmin.data.load("shakespeare", split)
    windows = tokens.flatten().unfold(0, CONTEXT + 1, 1)[:n]
    return windows[:, :-1], windows[:, -1]


def main(seed=0):
    torch.manual_seed(seed)
    am = altmin.AltMin(Text(), weights=altmin.LocalAdam(lr=0.003))
    train, test = shakespeare("train", 30_000), shakespeare("test", 5_000)
    return altmin.fit(am, train, test, epochs=3, batch_size=100, schedule="constant").epochs[-1]["test_accuracy"]


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
