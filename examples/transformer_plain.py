"""The transformer of transformer.py with PyTorch."""

import torch
from torch.nn.functional import cross_entropy
from transformer import Reader, sentences


def main(seed=0):
    torch.manual_seed(seed)
    model, (x, y), (x_test, y_test) = Reader(), sentences(), sentences()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5 * 40)
    for _ in range(5):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            cross_entropy(model(x["tokens"][rows], x["mask"][rows]), y[rows]).backward()
            optimizer.step()
            scheduler.step()
    model.eval()
    with torch.no_grad():
        return (model(**x_test).argmax(1) == y_test).float().mean().item()


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
