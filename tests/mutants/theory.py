"""Defects of the convergence theorem and of its study."""

from . import Mutant

MUTANTS = [
    Mutant("theory/bounds.py", "2 * xi - 3 * gamma", "2 * xi - 2 * gamma", "theory_bounds papers"),
    Mutant("theory/bounds.py", "(t + 2) + 1.5", "(t + 1) + 1.5", "theory_bounds papers"),
    Mutant("theory/bounds.py", "9 * sigma2", "4.5 * sigma2", "theory_bounds papers"),
    Mutant("theory/bounds.py", "+ 2 * eta * gamma * (blocks - 1)) * error", ") * error", "theory_bounds recursion"),
    Mutant("theory/bounds.py", "1 - 1.5 / (np.arange(n) + 2)", "1 - 1.5 / (np.arange(n) + 3)", "theory_bounds expands"),
    Mutant("theory/constants.py", "return min(self.strong)", "return max(self.strong)", "theory_constants worst"),
    Mutant("theory/constants.py", "2 * mu * lam / (mu + lam)", "mu * lam / (mu + lam)", "theory_constants xi"),
    Mutant("theory/constants.py", "1 - 2 * distances[far]", "1 - distances[far]", "theory_constants report"),
    Mutant("theory/quadratic.py", "pull.max(1), ", "pull.min(1), ", "theory_quadratic hessian"),
    Mutant("theory/quadratic.py", "+ pull @ self.radius", "", "theory_quadratic attained"),
    Mutant("theory/quadratic.py", "T[at] -= eta * H[at]", "T[at] -= eta * H[at] / 2", "theory_quadratic samples"),
    Mutant("theory/quadratic.py", "self.noise[d] ** 2 / n", "self.noise[d] ** 2", "theory_scheme expectation"),
    Mutant("theory/scheme.py", "block -= rule", "block += rule", "theory_scheme expectation"),
    Mutant(
        "theory/scheme.py", "np.square(problem.radius / 2)", "np.square(problem.radius)", "theory_scheme projection"
    ),
    Mutant("theory/scheme.py", "noise -= size", "noise -= 0.9 * size", "theory_scheme expectation"),
    Mutant(
        "theory/scheme.py",
        "start[:, at] + away * shrink[:, None]",
        "away * shrink[:, None]",
        "theory_scheme projection",
    ),
    Mutant("theory/scheme.py", "/ squares.shape[1] ** 0.5", "/ squares.shape[1]", "theory_scheme expectation"),
    Mutant("theory/scheme.py", "self._tabulate(t)", "pass", "theory_scheme expectation own"),
    Mutant("theory/checks.py", "max(abs(1 - eta * c)", "min(abs(1 - eta * c)", "theory_checks refuted"),
    Mutant("theory/checks.py", "a = 0.75 * lam / xi", "a = 1.5 * lam / xi", "theory_checks slow"),
    Mutant("theory/schedule.py", "step_size(self.last_epoch,", "step_size(self.last_epoch + 1,", "theory_schedule"),
    Mutant("theory/network.py", "root * (2 * self.penalty", "(2 * self.penalty", "theory_network"),
    Mutant("theory/network.py", "-2 * wrong * a + pull2", "-2 * wrong * a", "theory_network"),
    Mutant("theory/network.py", "len(order) if self.fresh else 1", "len(order)", "theory_network draw"),
    Mutant("theory/network.py", "len(order) if self.fresh else 1", "1", "theory_network draw"),
    Mutant("theory/network.py", "(1 + self.safety) * max", "max", "theory_network"),
    Mutant("theory/study.py", "mean + ERRORS * error <= limit", "mean <= limit", "theory_study errors"),
    Mutant("theory/study.py", "mean - ERRORS * error > limit", "mean > limit", "theory_study errors"),
    Mutant(
        "theory/study.py", "noise=self.problem.noise * self.noise_part", "noise=self.problem.noise", "theory_study part"
    ),
    Mutant("theory/study.py", "if t >= first and", "if", "theory_study rates"),
]
