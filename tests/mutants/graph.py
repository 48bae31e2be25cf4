"""Defects of tracing: where a graph is cut, what a piece computes, what is refused."""

from . import Mutant

MUTANTS = [
    Mutant("graph/trace.py", "longest <= i and node.users", "node.users", "graph_trace"),
    Mutant("graph/trace.py", "longest <= i and node.users", "longest < i and node.users", "graph_trace"),
    Mutant(
        "graph/trace.py",
        "longest, first = [], given, last_use[given], 1",
        "longest, first = [], given, 0, 1",
        "graph_trace",
    ),
    Mutant("graph/trace.py", 'node.op == "call_module" or not node.users or', "", "graph_trace once"),
    Mutant(
        "graph/trace.py",
        "return not any(isinstance(i, int | str) for i in entries) and",
        "return",
        "graph_trace tuples",
    ),
    Mutant("graph/trace.py", "sum(map(_has_weights, parts)) < 2", "False", "graph_trace blocks_end"),
    Mutant("graph/trace.py", "return not norm and any", "return any", "graph_trace inside"),
    Mutant("graph/trace.py", "if branches and not inside and", "if branches and", "graph_trace inside"),
    Mutant("graph/trace.py", "        parts[-1].ends.append(name)\n", "        pass\n", "graph_trace names"),
    Mutant("graph/piece.py", "x.clone() if self.in_place else x", "x", "graph_piece in_place"),
    Mutant("graph/piece.py", "return values[self.output]", "return values[1]", "graph_trace compose"),
    Mutant("graph/functional.py", 'kwargs.setdefault("start_dim", 0)', "pass", "graph_functional values"),
    Mutant("graph/functional.py", "last.args == (given, 0)", "True", "graph_functional values"),
    Mutant("graph/functional.py", "last.all_input_nodes != [given]", "False", "graph_functional argument"),
    Mutant("graph/record.py", "for training in (True, False)]", "for training in (True, True)]", "graph_record remedy"),
    Mutant("graph/record.py", "if changed:", "if False:", "graph_record remedy"),
    Mutant("graph/record.py", "            now.update(before)\n", "            pass\n", "graph_record remedy"),
    Mutant("graph/record.py", 'if then != "LOAD_ASSERTION_ERROR":', "if False:", "graph_record remedy"),
    Mutant("graph/record.py", "        random.setstate(states[0])\n", "", "graph_record remedy"),
    Mutant("chain.py", "or any(owner._buffers.get(name) is not b", "or any(False", "graph_trace changed"),
    Mutant("chain.py", "or any(own_call(c) for c in self._opened)", "", "graph_trace changed"),
    Mutant("chain.py", "several or len(held) > len(set(held))", "several", "graph_trace twice"),
    Mutant(
        "calculus/other.py",
        "any(m.training for m in self.module.modules())",
        "self.module.training",
        "graph_piece running",
    ),
]
