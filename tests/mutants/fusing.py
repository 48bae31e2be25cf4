"""Defects of flags, and of the compiling of short chains of operations."""

from . import Mutant

MUTANTS = [
    Mutant("fusing.py", "if not _active.on or torch.compiler.is_compiling():", "if False:", "fusing nowhere"),
    Mutant("fusing.py", "if not _active.on or torch.compiler.is_compiling():", "if True:", "fusing nowhere"),
    Mutant("fusing.py", "alone = _active.on and not", "alone = not", "fusing members"),
    Mutant("fusing.py", "is_compiling() and not vectorised()", "is_compiling()", "fusing members"),
    Mutant("fusing.py", "with _active.set(wanted)", "with _active.set(True)", "fusing nowhere"),
    Mutant("flags.py", "threading.local()  #", "threading  #", "flags thread"),
    Mutant("flags.py", "self._local.on = before", "self._local.on = False", "flags before"),
    Mutant("flags.py", "self._local.on = before", "self._local.on = on", "flags before"),
    Mutant("flags.py", "before, self._local.on = self.on, on", "before = self.on", "flags compiled"),
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
