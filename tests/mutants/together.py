"""Defects of runs on several ranks."""

from . import Mutant

MUTANTS = [
    Mutant("training/together.py", "self.size * squares != total**2", "False", "training_together mistakes"),
    Mutant("training/together.py", "found = ranks.post(error)", "found = error", "training_together error"),
    Mutant("training/epochs.py", "        torch.set_rng_state(before)\n", "", "training_together history"),
    Mutant("training/epochs.py", "bounds(len(rows), *self.spread)", "(0, len(rows))", "training_together history"),
    Mutant(
        "training/run.py",
        "_state(self.loop, self.method), self.together.first)",
        "_state(self.loop, self.method))",
        "training_together alone",
    ),
    Mutant("training/callbacks.py", 'getattr(each, "first_rank_only", False)', "False", "training_together stop"),
    Mutant("training/sources.py", "of - len(rows)", "0", "data_shards unmapped"),
    Mutant("cli/ranks.py", "return_annotation is AltMin", "return_annotation is not None", "cli_layers codes"),
    Mutant("cli/ranks.py", "own > found", "own > found + 2", "cli_layers gpus"),
    Mutant("cli/ranks.py", "if count() % layers:", "if count() < layers:", "cli_layers refused"),
    Mutant("cli/ranks.py", "begins and seen", "seen", "cli_ranks refused"),
    Mutant("cli/ranks.py", "zlib.crc32(bare.encode())", "zlib.crc32(text.encode())", "cli_ranks once"),
]
