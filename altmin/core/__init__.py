"""The algorithm: objective, codes, weights, one mini-batch."""
