"""Defects of the code update over ranks: runs of blocks whose sums are taken at once."""

from . import Mutant

MUTANTS = [
    Mutant("codes/straight.py", "longest = ask.longest * bounds[-1]", "longest = ask.longest", "codes_straight"),
    Mutant("codes/straight.py", "g = gate(g, x) if block.rectified else g", "pass", "codes_straight equations"),
    Mutant("codes/straight.py", "below.offset_square = uu", "pass", "codes_straight"),
    Mutant(
        "codes/straight.py",
        "offset = None if room is None else partial(each",
        "offset = None if 1 else partial(each",
        "codes_straight",
    ),
    Mutant("codes/phases.py", "above.square = numbers.pop(0)[0]", "numbers.pop(0)", "codes_phases grow"),
    Mutant("codes/phases.py", "pull.tried.scale != above.scale", "False", "codes_phases refused"),
    Mutant("codes/phases.py", "HJg = above.start.hessian(Jg) if last else Jg", "HJg = Jg", "codes_phases equations"),
    Mutant(
        "codes/phases.py",
        "(theta[l], state, delta)\n        found",
        "(theta[l], state, above.delta)\n        found",
        "codes_phases spared",
    ),
    Mutant("codes/phases.py", "if weights_first and isinstance(above, Ask)", "if False", "codes_phases spared"),
    Mutant("codes/phases.py", "Ask(pull.g, square, above.scale * a,", "Ask(pull.g, square, a,", "codes_phases grow"),
    Mutant("codes/gradient.py", "if shared() is not None and type", "if False and type", "codes_phases grow"),
    Mutant("reweighted.py", "is None else self.counts[1]", "is None else count", "reweighted weighted"),
]
