"""Defects of the compiling of short chains of operations."""

from . import Mutant

MUTANTS = [
    Mutant("fusing.py", "if not _active or torch.compiler.is_compiling():", "if False:", "fusing nowhere"),
    Mutant("fusing.py", "if not _active or torch.compiler.is_compiling():", "if True:", "fusing nowhere"),
    Mutant("fusing.py", "alone = _active and not", "alone = not", "fusing members"),
    Mutant("fusing.py", "is_compiling() and not vectorised()", "is_compiling()", "fusing members"),
    Mutant("fusing.py", "before, _active = _active, wanted", "before, _active = _active, True", "fusing nowhere"),
    Mutant("fusing.py", "        _active = before\n", "        _active = False\n", "fusing nowhere"),
    Mutant("fusing.py", "        _active = before\n", "        pass\n", "fusing error"),
    Mutant("fusing.py", "_active = before", "_active = wanted", "fusing nowhere"),
    Mutant("fusing.py", "[next(given) if value is None", "[None if value is None", "fusing many"),
    Mutant("fusing.py", "tuple(d for d, value in zip(dims", "tuple(0 for d, value in zip(dims", "fusing many"),
    Mutant("fusing.py", "tuple(dims[2:])", "tuple(dims[1:-1])", "fusing many"),
    Mutant(
        "fusing.py",
        "_vectorised(function, form, tuple(dims[2:]), fixed)",
        "_vectorised(function, form, tuple(dims[2:]), fixed[::-1])",
        "fusing many",
    ),
    Mutant("fusing.py", "torch.cuda.is_available() and has_triton()", "True", "fusing default"),
]
