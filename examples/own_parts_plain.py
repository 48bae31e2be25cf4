"""The steps of own_parts.py as an optimizer of PyTorch, with backprop's gradients."""

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from altmin.models import mlp


class Signs(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.001):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad.sign())


def main(seed=0):
    torch.manual_seed(seed)
    x, y = (torch.as_tensor(each) for each in load_digits(return_X_y=True))
    model, x = mlp(64, (64, 64), 10), x.float()
    optimizer = Signs(model.parameters())
    for _ in range(20):
        for rows in torch.randperm(1200).split(50):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return (model(x[1200:]).argmax(1) == y[1200:]).float().mean().item()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
