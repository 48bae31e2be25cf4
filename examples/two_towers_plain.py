"""The two-tower model of two_towers.py with PyTorch."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from two_towers import Towers, hits, likes


def main(seed=0):
    torch.manual_seed(seed)
    model, [(x, y), (x_test, y_test)] = Towers(), likes(8000, 2000)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(6):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            output = model(*(each[rows] for each in x))
            binary_cross_entropy_with_logits(output, y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return hits(model(*x_test), y_test).item()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
