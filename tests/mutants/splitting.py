"""Defects of ADMM, BCD and what they share."""

from . import Mutant

MUTANTS = [
    Mutant("methods/proximal.py", "1 - math.sqrt(1 + g)", "1 - math.sqrt(1 + 2 * g)", "methods_proximal grid"),
    Mutant(
        "methods/proximal.py", "m.clamp_max(left), m.clamp_min(right)", "m.clamp_max(left)", "methods_proximal grid"
    ),
    Mutant("methods/proximal.py", "w.sum(0).mul_(weight)", "w.sum(0)", "methods_proximal gradient"),
    Mutant("methods/proximal.py", "(v - 1 / weight)", "(v - 2 / weight)", "methods_proximal grid"),
    Mutant("methods/proximal.py", "(1 + weight)\n", "(2 + weight)\n", "methods_proximal grid"),
    Mutant("methods/per_sample.py", "            self.inputs[n, :n] += total\n", "", "methods_per_sample stacked"),
    Mutant("methods/per_sample.py", "        self.products += other.products\n", "", "methods_per_sample shards"),
    Mutant(
        "methods/per_sample.py", "self.products + proximal * old", "self.products + old", "methods_per_sample stacked"
    ),
    Mutant("methods/per_sample.py", "a.sum(0, dtype=torch.float64)", "2 * a.sum(0)", "methods_per_sample stacked"),
    Mutant("methods/per_sample.py", "        self.seen[rows] = True\n", "", "methods_per_sample pass"),
    Mutant("methods/splitting.py", "alpha / (rho + alpha))", "rho / (rho + alpha))", "methods_splitting brute"),
    Mutant("methods/splitting.py", "gamma, rho + alpha)", "gamma, rho)", "methods_splitting brute"),
    Mutant("methods/splitting.py", "self.ridge * samples, proximal", "self.ridge, proximal", "methods_splitting brute"),
    Mutant("methods/splitting.py", "below[new]", "below", "methods_splitting late"),
    Mutant(
        "methods/splitting.py", "if self.passes == 0 and layer.trained", "if layer.trained", "methods_splitting brute"
    ),
    Mutant(
        "methods/splitting.py", "        self._fixed = None\n\n    @torch", "\n    @torch", "methods_splitting brute"
    ),
    Mutant("methods/admm.py", "rho / 2 * (z - m)", "rho * (z - m)", "methods_admm multiplier"),
    Mutant("methods/admm.py", "m - extra / rho", "m + extra / rho", "methods_admm hinge"),
    Mutant("methods/admm.py", "shrink ** (depth - l)", "shrink ** l", "methods_admm shrink"),
    Mutant("methods/bcd.py", "gamma / (gamma + rho)", "rho / (gamma + rho)", "methods_bcd minima"),
    Mutant("methods/bcd.py", "alpha / (gamma + alpha)", "gamma / (gamma + alpha)", "methods_bcd minima"),
    Mutant("methods/bcd.py", "ridge=ridge, proximal=alpha", "ridge=ridge", "methods_bcd proximal"),
]
