"""Defects of the places where other libraries' loops meet a method, and of deprecations."""

from . import Mutant

LIGHTNING, OPTIMIZER, SKORCH = (f"integrations/{name}.py" for name in ("lightning", "optimizer", "skorch"))

MUTANTS = [
    Mutant(
        OPTIMIZER,
        "        found = closure()\n        self._share()\n",
        "        found = closure()\n",
        "integrations_optimizer itself",
    ),
    Mutant(
        OPTIMIZER,
        "self.method.load_state_dict(state_dict)\n        self._share()",
        "self.method.load_state_dict(state_dict)",
        "integrations_optimizer loaded",
    ),
    Mutant(
        OPTIMIZER,
        '{**super().__getstate__(), "method": self.method}',
        "super().__getstate__()",
        "integrations_optimizer pickled",
    ),
    Mutant(OPTIMIZER, '"lr": 0.0}', '"lr": 1.0}', "integrations_optimizer without"),
    Mutant(
        OPTIMIZER, "return self.method.state_dict()", "return super().state_dict()", "integrations_optimizer goes_on"
    ),
    Mutant(
        LIGHTNING,
        "optimizer.step(lambda: self.method.step(*batch))",
        "self.method.step(*batch)",
        "integrations_lightning global_step",
    ),
    Mutant(LIGHTNING, "            self.method.end_epoch()\n", "", "integrations_lightning own_loop"),
    Mutant(
        LIGHTNING, "        if self.trainer.is_last_batch:\n", "        if True:\n", "integrations_lightning own_loop"
    ),
    Mutant(LIGHTNING, 'count % self.plan["frequency"] == 0', "True", "integrations_lightning frequency"),
    Mutant(
        LIGHTNING,
        'self._due("step", batch_idx + 1)',
        'self._due("step", batch_idx)',
        "integrations_lightning frequency",
    ),
    Mutant(
        LIGHTNING,
        'return [optimizer], [self.plan["scheduler"]]',
        "return [optimizer]",
        "integrations_lightning resumed",
    ),
    Mutant(
        LIGHTNING, 'self.plan["scheduler"].step(known[self.plan["monitor"]])', "pass", "integrations_lightning watches"
    ),
    Mutant(LIGHTNING, "if self.trainer.world_size > 1:", "if False:", "integrations_lightning processes"),
    Mutant(LIGHTNING, "(output.argmax(1) == y)", "(output.argmin(1) == y)", "integrations_lightning logged"),
    Mutant(
        SKORCH, "            self.optimizer_.method.end_epoch()\n", "            pass\n", "integrations_skorch own_loop"
    ),
    Mutant(SKORCH, "        if training:\n", "        if not training:\n", "integrations_skorch before"),
    Mutant(
        SKORCH,
        '{"loss": self.criterion_, **self.get_params_for("optimizer")}',
        '{**self.get_params_for("optimizer")}',
        "integrations_skorch line",
    ),
    Mutant(SKORCH, "        if self.lr is not None:\n", "        if False:\n", "integrations_skorch options"),
    Mutant(SKORCH, "self.evaluation_step(batch) if scored else None", "None", "integrations_skorch score"),
    Mutant("deprecation.py", "end[1] > since[1])", "end[1] >= since[1])", "deprecation other"),
    Mutant("deprecation.py", "stacklevel=3", "stacklevel=2", "deprecation line"),
    Mutant("deprecation.py", "end[2] != 0 or", "", "deprecation other"),
    Mutant("deprecation.py", "            found.warn()\n", "", "deprecation warns"),
]
