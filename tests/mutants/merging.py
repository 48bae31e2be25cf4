"""Defects of memories of several sites that are added up from files."""

from . import Mutant

MUTANTS = [
    Mutant("training/merging.py", "one.A + two.A", "one.A", "training_merging sums"),
    Mutant("training/merging.py", "one.R + two.R", "two.R", "training_merging sums"),
    Mutant("training/merging.py", "one.samples + two.samples", "one.samples", "training_merging rounds"),
    Mutant("training/merging.py", "one + other.gradients[l] for", "one for", "training_merging rounds"),
    Mutant("training/merging.py", "self.samples + other.samples}", "self.samples}", "training_merging sums"),
    Mutant(
        "training/merging.py",
        '"gathered": given["memories"]',
        '"gathered": state["gathered"]',
        "training_merging rounds",
    ),
    Mutant(
        "training/merging.py", "        if there[key] != here[key]:", "        if False:", "training_merging belong"
    ),
    Mutant("training/merging.py", '    "weights": "digests of the weights",\n', "", "training_merging belong"),
    Mutant("training/merging.py", '    "mu": "values of mu",\n', "", "training_merging belong"),
    Mutant("training/merging.py", "        seen[content] = path\n", "", "training_merging once"),
    Mutant("training/merging.py", '    if about["remembers"]:', "    if False:", "training_merging begin"),
    Mutant(
        "training/merging.py", 'CoActivationMemory(**about["fit"])', "CoActivationMemory()", "training_merging alone"
    ),
    Mutant(
        "weights/local.py", "[a + b for a, b in zip(self.grads", "[a - b for a, b in zip(self.grads", "training_merging"
    ),
    Mutant("cli/merge.py", " or set(outputs) & set(inputs):", ":", "cli_merge mistake"),
]
