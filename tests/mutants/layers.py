"""Defects of the layers without derivatives."""

from . import Mutant

MUTANTS = [
    Mutant("layers.py", "x < 0, -1.0", "x <= 0, -1.0", "layers"),
    Mutant("layers.py", "right=True", "right=False", "layers"),
    Mutant("layers.py", "sub_(1 + h / 2)", "sub_(1)", "layers"),
    Mutant("layers.py", "torch.where(x.isnan(), x, y)", "y", "layers"),
    Mutant("layers.py", "raise no_derivative(ctx.module)", "return _[0], None", "layers"),
    Mutant("layers.py", "x.clamp(-1, 1)", "x.clamp(-2, 2)", "layers"),
]
