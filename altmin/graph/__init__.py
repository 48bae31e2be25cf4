"""A module that `torch.fx` can trace as modules one after the other: `record` its forward, find the places through
which everything passes, and make a module of each part between two of them."""
