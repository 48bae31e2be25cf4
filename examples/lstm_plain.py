"""The LSTM of lstm.py with PyTorch."""

import torch
from lstm import Rows, digits
from torch.nn.functional import cross_entropy


def main(seed=0):
    torch.manual_seed(seed)
    model, (x, y), (x_test, y_test) = Rows(), digits("train", 4000), digits("test", 2000)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(3):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return (model(x_test).argmax(1) == y_test).float().mean().item()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
