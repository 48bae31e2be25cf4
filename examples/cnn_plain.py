"""The run of cnn.py with PyTorch: states are saved and restored by hand. Ctrl-C is a first run of two epochs."""

import tempfile
from pathlib import Path

import torch
from cnn import digits, net
from torch.nn.functional import cross_entropy


def train(path, until):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    parts = model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    epochs, states, random = torch.load(path) if path.exists() else (0, [], torch.get_rng_state())
    torch.set_rng_state(random)
    for part, state in zip(parts, states, strict=False):
        part.load_state_dict(state)
    for epoch in range(epochs + 1, until + 1):
        for x, y in digits("train", 3000, shuffle=True):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        parts[-1].step()
        torch.save((epoch, [part.state_dict() for part in parts], torch.get_rng_state()), path)
    with torch.no_grad():
        return torch.cat([model(x).argmax(1) == y for x, y in digits("test", 2000)]).float().mean().item()


def main(seed=0):
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder, "run.pt"), until=2)
        return train(Path(folder, "run.pt"), until=4)


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
