"""Defects of blocks that are spread over ranks."""

from tests.mutants import Mutant

LAYERS, PIPELINED, NEIGHBOURS = (f"execution/{name}.py" for name in ("layer_parallel", "pipelined", "neighbours"))
STEP = "execution_layer_parallel gathers"

MUTANTS = [
    Mutant(
        PIPELINED,
        "ahead = min(parts, 2 * (stages - 1 - stage))",
        "ahead = min(parts, stages - 1 - stage)",
        "execution_pipelined",
    ),
    Mutant(PIPELINED, "self._samples(i) / len(self.x)", "1.0", STEP),
    Mutant(PIPELINED, "            m.commit(kept)\n", "            pass\n", STEP),
    Mutant(PIPELINED, "if self._repeats(i):", "if False:", STEP),
    Mutant(PIPELINED, "            raise error\n", "            pass\n", "execution_pipelined finite"),
    Mutant(PIPELINED, "1_000_003 * i + l", "l", "execution_pipelined dropout"),
    Mutant(NEIGHBOURS, "return kind + 8 * part", "return kind", STEP),
    Mutant(NEIGHBOURS, "        self.sent += t.numel() * t.element_size()\n", "", "execution_neighbours arrive"),
    Mutant(LAYERS, "            del held[p]\n", "            pass\n", "execution_layer_parallel goes_on"),
    Mutant(
        LAYERS,
        "max(most, float(weight[end] - weight[begin]))",
        "most + float(weight[end] - weight[begin])",
        "execution_layer_parallel most",
    ),
    Mutant(LAYERS, "own.grad if id(own) in keep else None", "own.grad", "execution_layer_parallel goes_on_and"),
    Mutant(
        LAYERS, "            _ahead.add(self.model)\n", "            pass\n", "execution_layer_parallel goes_on_and"
    ),
    Mutant(LAYERS, "if self.neighbours.awaited:", "if False:", "execution_ranks on_their_way"),
    Mutant("weights/local.py", "if found[l] is not None}", "}", STEP),
]
