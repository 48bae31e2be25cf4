"""The co-activation memory for people who keep backpropagation: a torch optimizer."""

from altmin.optim.coactivation import CoActivation

__all__ = ["CoActivation"]
