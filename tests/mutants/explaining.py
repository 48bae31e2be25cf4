"""Defects of `altmin.explain`."""

from . import Mutant

MUTANTS = [
    Mutant("explaining/measure.py", "return copy.deepcopy(model), ", "return model, ", "explaining_measure neither"),
    Mutant("explaining/measure.py", 'if name in ("codes", "penalty")', "if False", "explaining_measure neither"),
    Mutant("explaining/measure.py", "/ g / b if g and b", "/ g / g if g and b", "explaining_measure share"),
    Mutant("explaining/measure.py", "asked - watch.left[l]", "watch.left[l]", "explaining_measure length"),
    Mutant("explaining/measure.py", "(rows <= 0).all(0)", "(rows <= 0).any(0)", "explaining_measure dead"),
    Mutant("explaining/measure.py", "axis = 1 if", "axis = -1 if", "explaining_measure channels"),
    Mutant("explaining/measure.py", "norm([p - q for", "norm([p + q for", "explaining_measure movement"),
    Mutant("explaining/measure.py", "math.sqrt(watch.moves[l])", "watch.moves[l]", "explaining_measure movement"),
    Mutant(
        "explaining/measure.py",
        "with torch.enable_grad(), layers.straight_through():",
        "with torch.enable_grad():",
        "explaining_measure estimate",
    ),
    Mutant("explaining/watch.py", "/ float(above.scale) if", "if", "explaining_watch"),
    Mutant("explaining/watch.py", "1000 * median", "1000 * max", "explaining_watch timed"),
    Mutant("explaining/advice.py", "row.cosine < COSINE", "row.cosine > COSINE", "explaining_advice"),
    Mutant("explaining/advice.py", "and row.backprop > 0]", "]", "explaining_advice"),
    Mutant("explaining/advice.py", "3 * math.log(facts.classes):\n", "math.log(facts.classes):\n", "explaining_advice"),
    Mutant("explaining/explanation.py", "+ self.facts.update", "", "explaining_explanation parts"),
    Mutant("cli/doctor.py", "rows[after]], y", "rows[0]], y", "cli_doctor first"),
]
