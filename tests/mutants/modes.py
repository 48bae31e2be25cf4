"""Defects of the ways to run nets that branch: passes of parts through autograd, buffers of members, modes."""

from . import Mutant

MUTANTS = [
    Mutant(
        "calculus/other.py",
        "return self._pass(p, xs, before) if drew else (point.y, point)",
        "return point.y, point",
        "calculus_other numbers",
    ),
    Mutant(
        "calculus/other.py", "        return Pass(self.buffers)\n", "        return self\n", "calculus_other chosen"
    ),
    Mutant(
        "calculus/other.py",
        "saved.by.graph = self.replay(p, saved, saved.xs)[1].by.graph",
        "return self.replay(p, saved, saved.xs)[1].by.graph",
        "calculus_other chosen",
    ),
    Mutant(
        "calculus/other.py", "            saved.by.twice = twice\n", "            pass\n", "execution_networks passes"
    ),
    Mutant("calculus/other.py", "pull = saved.by.pull or self", "pull = self", "calculus_other passes"),
    Mutant("calculus/numbers.py", 'tree.either() if hasattr(tree, "either") else tree', "tree", "calculus_numbers one"),
    Mutant(
        "execution/members.py",
        "for table, name in places:",
        "for table, name in places[:1]:",
        "execution_networks alone",
    ),
    Mutant("execution/ensemble.py", "method.chain.note_buffers()", "pass", "graph_piece buffers"),
    Mutant("execution/ensemble.py", "y.ndim == 2 and x.ndim > 2", "y.ndim == 2", "execution_networks tokens"),
    Mutant("execution/ensemble.py", "x.ndim > 1 + x.is_floating_point()", "x.ndim > 2", "execution_networks tokens"),
    Mutant(
        "execution/recorded.py", "or [m.training for m in self.modules] != self.modes", "", "execution_recorded mode"
    ),
    Mutant("chain.py", "for each in (m, *m.inner) if each", "for each in (m,) if each", "graph_piece graph"),
]
