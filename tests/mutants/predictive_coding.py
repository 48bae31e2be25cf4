"""Defects of predictive coding, with and without multipliers, and of the residual block."""

from . import Mutant

FILE, RESIDUAL, MODEL = "methods/predictive_coding.py", "calculus/residual.py", "models/residual.py"
TESTS = "methods_predictive_coding"

MUTANTS = [
    Mutant(FILE, "return self.u - q, state", "return self.u + q, state", TESTS),
    Mutant(FILE, "self.point(self.rho + self.dual)", "self.point(self.rho)", "methods_pc_alm"),
    Mutant(FILE, "_, deltas, states = self.point(self.rho)", "_, deltas, states = self.point(1.0)", "methods_pc_alm"),
    Mutant(FILE, "self.runs[i].multipliers.add_(errors[i], alpha=self.dual)", "pass", "methods_pc_alm"),
    Mutant(FILE, "self.targets) * self.unit", "self.targets)", TESTS),
    Mutant(FILE, "grad / self.unit for grad in each", "grad for grad in each", TESTS),
    Mutant(FILE, "wanted = torch.cat([pulled[1:], above.unsqueeze(0)])", "wanted = pulled", TESTS),
    Mutant(FILE, "            output = output - q\n", "            output = output + q\n", TESTS),
    Mutant(
        RESIDUAL,
        "self._sum(v, self.relu.vjp((), saved, products.matmul(v, p[0])))",
        "v + self.relu.vjp((), saved, products.matmul(v, p[0]))",
        "calculus_residual",
    ),
    Mutant(RESIDUAL, ".mul_(self.module.scale)", "", "calculus_residual"),
]
