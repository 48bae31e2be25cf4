"""Defects of tracing and of graphs of maps: where a graph is cut, what a piece computes, what is refused."""

from . import Mutant

MUTANTS = [
    Mutant("graph/trace.py", "if last_use[each] > i]", "if last_use[each] > i + 1]", "graph_trace"),
    Mutant("graph/trace.py", "if last_use[each] > i]", "if False]", "graph_trace"),
    Mutant("graph/trace.py", "and not any(each in sizes for each in live)", "", "graph_trace blocks_end"),
    Mutant("graph/values.py", 'node.op == "call_module" or not node.users or', "", "graph_trace once"),
    Mutant(
        "graph/values.py",
        "return not any(isinstance(i, int | str) for i in entries) and",
        "return",
        "graph_trace tuples",
    ),
    Mutant("graph/trace.py", "sum(map(_has_weights, parts)) < 2", "False", "graph_trace blocks_end"),
    Mutant("graph/trace.py", "return not norm and any", "return any", "graph_trace inside"),
    Mutant("graph/trace.py", "if branches and not inside and", "if branches and", "graph_trace inside"),
    Mutant("graph/trace.py", "        parts[-1].ends.append(name)\n", "        pass\n", "graph_trace names"),
    Mutant("graph/piece.py", "        if self.in_place:\n", "        if False:\n", "graph_piece in_place"),
    Mutant("graph/piece.py", "made = [values[i] for i in self.made]", "made = values[1:]", "graph_trace compose"),
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
    Mutant("graph/maps.py", "if overwrites(module, nodes):", "if False:", "graph_maps order"),
    Mutant("graph/maps.py", "found: set[fx.Node] = set(counts)", "found: set[fx.Node] = set()", "graph_trace sizes"),
    Mutant(
        "graph/maps.py", "if any(each in still for each in node.all_input_nodes):", "if False:", "graph_trace sizes"
    ),
    Mutant("graph/inplace.py", "user.replace_input_with(base, node)", "pass", "graph_inplace"),
    Mutant("graph/inplace.py", "if base is not None and base not in sizes:", "if base is not None:", "graph_inplace"),
    Mutant("graph/trace.py", "if each not in parts[-1].ends]", "if False]", "graph_piece both_places"),
    Mutant("graph/inplace.py", "root.get(base, node)", "node", "graph_inplace"),
    Mutant("graph/trace.py", "if overwrites(owner, nodes, surely=True):", "if False:", "graph_inplace"),
    Mutant("graph/record.py", "return Value(node, self)", "return fx.Proxy(node, self)", "graph_inplace"),
    Mutant("graph/regions.py", "apart |= {node for _, group in bad for node in group}", "return None", "graph_regions"),
    Mutant("graph/piece.py", "if id(what) not in held:", "if True:", "graph_piece once"),
    Mutant("calculus/other.py", "tuple(xs), tie_weights=False)", "tuple(xs))", "calculus_other two_names"),
    Mutant(
        "graph/maps.py", "if not inputs or any(i not in named for i in ids):", "if not inputs:", "graph_maps shared"
    ),
    Mutant(
        "graph/maps.py",
        "joints.get(region.output) if region.alone else None",
        "joints.get(region.output)",
        "graph_maps two",
    ),
    Mutant(
        "graph/regions.py", "of = tried if _sorted(tried, takes) is not None else of", "of = tried", "graph_regions"
    ),
    Mutant("graph/regions.py", "        loose |= users\n", "        return None\n", "graph_maps two"),
    Mutant("graph/inline.py", "env[each].target = join(str(node.target), str(each.target))", "pass", "graph_inline"),
    Mutant(
        "graph/inline.py", "by.meta.setdefault(ENDS, []).extend(node.meta.get(ENDS, []))", "pass", "graph_inline ends"
    ),
    Mutant("graph/values.py", "node.target in WITHOUT_DERIVATIVE or from_these", "from_these", "graph_values"),
    Mutant("graph/record.py", "if draws.seen or not all(", "if not all(", "graph_record"),
    Mutant("calculus/joints.py", "v.sum_to_size(shape)", "v", "calculus_joints autograd"),
    Mutant("calculus/joints.py", "return total.expand(saved[1])", "return total", "calculus_joints move"),
    Mutant(
        "calculus/joints.py",
        "self.jvp(p, (a, saved[1]), us), (a, b)",
        "self.jvp(p, saved, us), (a, b)",
        "calculus_joints",
    ),
    Mutant("calculus/joints.py", "(v * b).sum_to_size", "(v * a).sum_to_size", "calculus_joints autograd"),
    Mutant("calculus/graph.py", "sent[j] = _added(sent[j], g)", "sent[j] = g", "calculus_graph autograd"),
    Mutant("calculus/graph.py", "b if a is None else a + b", "b", "calculus_graph"),
    Mutant("calculus/graph.py", "bool(node.names) or any(", "any(", "calculus_graph autograd"),
    Mutant(
        "calculus/graph.py",
        "saved._replace(x=shifted(saved.x, u, e), saved=kept, whole=not light)",
        "saved",
        "calculus_graph stands",
    ),
    Mutant(
        "calculus/graph.py",
        "joint.replay(p[self.slices[i]], saved.saved[i], xs)",
        "joint.forward(p[self.slices[i]], xs)",
        "calculus_graph replay",
    ),
    Mutant(
        "calculus/graph.py",
        "                node.joint.commit(what)\n",
        "                pass\n",
        "calculus_graph commits",
    ),
    Mutant("calculus/passage.py", "left, self._left = self._left, None", "left = self._left", "calculus_passage once"),
    Mutant("calculus/passage.py", "code.split([shape[1:].numel()", "code.split([shape.numel()", "calculus_passage"),
    Mutant(
        "calculus/graph.py",
        "        if light:  # of one form",
        "        if False:  # of one form",
        "calculus_graph choose",
    ),
    Mutant("codes/choose.py", "any(step.target in ATTENTION for step in steps)", "False", "codes_choose attention"),
    Mutant(
        "codes/choose.py", "any(isinstance(m, nn.MultiheadAttention) for m in inside) or", "", "codes_choose attention"
    ),
]
