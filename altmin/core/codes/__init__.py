"""Code solvers: how the codes of a mini-batch move."""
