"""The model of tied.py with PyTorch."""

import torch
from tied import Text, shakespeare
from torch.nn.functional import cross_entropy


def main(seed=0):
    torch.manual_seed(seed)
    model, (x, y), (x_test, y_test) = Text(), shakespeare("train", 30_000), shakespeare("test", 5_000)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(3):
        for rows in torch.randperm(len(y)).split(100):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return (model(x_test).argmax(1) == y_test).float().mean().item()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
