"""Defects of the cost model and of critical paths."""

from . import Mutant

MUTANTS = [
    Mutant("execution/cost.py", "return item * (n * n + n * m)", "return item * n * m", "execution_cost sends"),
    Mutant("execution/cost.py", "(norms if norms else wide)[0] += WIDE", "wide[0] += 0", "execution_cost sends"),
    Mutant("execution/cost.py", "2 * (ranks - 1) / ranks * self.bytes", "2 * self.bytes", "execution_cost ring"),
    Mutant("execution/cost.py", "net[cut].kinks and cut < len(net) - 1", "net[cut].kinks", "execution_cost offset"),
    Mutant("execution/cost.py", "if waiting >= BUCKET:", "if waiting > 2 * BUCKET:", "execution_cost full"),
    Mutant("execution/critical_path.py", "f * (1 + n / m), 2 *", "f, 2 *", "execution_critical_path torch share"),
    Mutant(
        "execution/critical_path.py",
        "if times and (kind != UP or may_go_up[r])",
        "if times",
        "execution_critical_path equal",
    ),
    Mutant(
        "execution/critical_path.py",
        "DOWN, UP, WEIGHTS = range(3)",
        "WEIGHTS, UP, DOWN = range(3)",
        "execution_critical_path equal",
    ),
    Mutant(
        "execution/critical_path.py",
        "max(bulk[-1], sum(bulk) - meanwhile)",
        "sum(bulk)",
        "execution_critical_path leave",
    ),
]
