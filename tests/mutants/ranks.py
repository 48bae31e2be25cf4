"""Defects of sums over ranks."""

from . import Mutant

RANKS = "execution/ranks.py"
SPREAD = "execution_distributed options"
MUTANTS = [
    Mutant("calculus/ranks.py", "count * share.of // share.own", "count", "calculus_ranks entries"),
    Mutant("calculus/ranks.py", "whole[per_sample * share.start :]", "whole", "calculus_ranks draw"),
    Mutant("calculus/ranks.py", "if self.size >= BUCKET:", "if False:", "calculus_ranks fills"),
    Mutant("calculus/whole_batch.py", "return Total.apply(grad.contiguous())", "return grad", "calculus_whole_batch"),
    Mutant("reweighted.py", "factor, mean = self.own / self.counts[0]", "factor, mean = 1.0", "reweighted ranks"),
    Mutant("reweighted.py", "        if not self.own:", "        if False:", "reweighted ranks"),
    Mutant("methods/backprop.py", "        if not own:", "        if False:", SPREAD),
    Mutant("methods/proxprop.py", "        sums.finish()\n", "", SPREAD),
    Mutant("methods/dtp.py", "        sums.finish()\n", "", SPREAD),
    Mutant("methods/predictive_coding.py", "        sums.finish()\n", "", SPREAD),
    Mutant("methods/per_sample.py", "% share.size == share.rank", ">= 0", "execution_distributed without_rows"),
    Mutant("methods/splitting.py", "self._fit(l, grams[l]", "self._fit(l, self.grams[l]", "execution_distributed rows"),
    Mutant(
        "methods/per_sample.py",
        'grams = state["grams"] if share.rank == 0',
        'grams = state["grams"] if share.size',
        "execution_distributed within_a_pass",
    ),
    Mutant(
        "calculus/sample_weight.py",
        "not summed_numbers(float((w > 0).any()))[0]",
        "not bool((w > 0).any())",
        SPREAD,
    ),
    Mutant(RANKS, "self.kind != FOLLOWED and self.messages == messages", "True", "execution_ranks after"),
    Mutant(RANKS, "!= self.size * signature:", "== -1:", "execution_ranks same_step"),
    Mutant(RANKS, "flat if truth else torch.zeros_like(flat)", "flat", "execution_distributed one_process"),
]
