"""Defects of the code update over ranks: runs of blocks whose sums are taken at once."""

from . import Mutant

MUTANTS = [
    Mutant("codes/straight.py", "longest = ask.longest * bounds[-1]", "longest = ask.longest", "codes_straight"),
    Mutant("codes/straight.py", "g = gate(g, x) if block.rectified else g", "pass", "codes_straight equations"),
    Mutant("codes/straight.py", "below.offset_square = uu", "pass", "codes_straight"),
    Mutant("codes/straight.py", "else partial(each.block.", "and partial(each.block.", "codes_straight"),
    Mutant("codes/phases.py", "above.square = numbers.pop(0)[0]", "numbers.pop(0)", "codes_phases grow"),
    Mutant("codes/phases.py", "pull.tried.scale != above.scale", "False", "codes_phases refused"),
    Mutant(
        "codes/phases.py", "            if i and pull.tried", "            if pull.tried", "codes_phases not_a_number"
    ),
    Mutant("codes/phases.py", "HJg = above.start.hessian(Jg) if last else Jg", "HJg = Jg", "codes_phases equations"),
    Mutant("codes/phases.py", "._replace(grads=grads)", "._replace(grads=None)", "codes_phases spared"),
    Mutant("codes/phases.py", "if weights_first and isinstance(above, Ask)", "if False", "codes_phases spared"),
    Mutant("codes/phases.py", "Ask(pull.g, square, above.scale * a,", "Ask(pull.g, square, a,", "codes_phases grow"),
    Mutant("codes/gradient.py", "if shared() is not None and type", "if False and type", "codes_phases grow"),
    Mutant("reweighted.py", "            return self.counts[1]", "            pass", "reweighted"),
    Mutant("reweighted.py", "factor = own / count", "factor = 1.0", "reweighted"),
]
