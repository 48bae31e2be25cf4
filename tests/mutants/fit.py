"""Defects of training loops, schedules and checkpoints."""

from . import Mutant

MUTANTS = [
    Mutant(
        "fit/loop.py",
        "epoch_order(len(x), seed, self.at.epoch) for",
        "epoch_order(len(x), 0, self.at.epoch) for",
        "fit_ensemble",
    ),
    Mutant(
        "fit/loop.py",
        "epoch_order(len(x), seed, self.at.epoch) for",
        "epoch_order(len(x), seed, 0) for",
        "fit_loop fit_run",
    ),
    Mutant("fit/loop.py", "[self.at.batch : self.per_epoch]", "[: self.per_epoch]", "fit_run"),
    Mutant("fit/loop.py", "self.schedule.after_batch(self.number)", "pass", "fit_loop"),
    Mutant("fit/loop.py", "divmod(number - 1, self.per_epoch)", "divmod(number, self.per_epoch)", "fit_loop"),
    Mutant("fit/loop.py", "            self.schedule.restore()\n", "            pass\n", "fit_loop"),
    Mutant("fit/loop.py", "return self.at.epoch * self.per_epoch + self.at.batch", "return self.at.batch", "fit_loop"),
    Mutant("fit/loop.py", "count = max(1, self.at.batch - len(self.unread))", "count = 1", "fit_loop"),
    Mutant("fit/loop.py", "            self.schedule.start(self.number, self.at.epoch)\n", "", "fit_schedule rise"),
    Mutant("fit/schedule.py", "0.04 + 0.96 * t / part", "t / part", "fit_schedule rise"),
    Mutant("fit/schedule.py", "(t - part) / (1 - part)", "t", "fit_schedule rise"),
    Mutant("fit/schedule.py", 'group["lr"].copy_(rate) if', 'group["lr"] if', "execution_ensemble schedule"),
    Mutant(
        "fit/checkpoint.py", 'header["digest"] == _digest(header["state"], tensors)', "True", "fit_checkpoint flipped"
    ),
    Mutant("fit/checkpoint.py", "        found.update(entries(x))\n", "", "fit_checkpoint flipped places"),
    Mutant("fit/checkpoint.py", "for key in (*self.config, *there):", "for key in self.config:", "fit_checkpoint side"),
    Mutant("fit/checkpoint.py", "            discard(Path(self.path))\n", "            pass\n", "fit_run killed"),
    Mutant(
        "fit/identity.py", '("codes", "weights", "penalty", "loss")', '("weights", "penalty", "loss")', "fit_identity"
    ),
    Mutant("fit/identity.py", "torch.linspace(0, len(x) - 1,", "torch.linspace(0, len(x) // 2,", "fit_identity"),
    Mutant(
        "fit/identity.py",
        "parts = [part[rows.to(part.device)] for part in (x, y)]",
        "parts = [x[rows]]",
        "fit_identity",
    ),
    Mutant("fit/resumed.py", '    check_module(method.model, state["model"])\n', "", "fit_resumed"),
    Mutant(
        "fit/resumed.py",
        "if not math.isclose(rate, expected, rel_tol=1e-6, abs_tol=1e-12):",
        "if False:",
        "fit_resumed",
    ),
    Mutant("fit/resumed.py", '    _check_random(state["random"], loop.device)\n', "", "fit_resumed"),
    Mutant("fit/resumed.py", "loop.per_epoch if epoch < loop.epochs else 1", "loop.per_epoch", "fit_resumed finished"),
    Mutant("fit/run.py", "        **method_settings(method),\n", "", "fit_run other_parts"),
    Mutant("fit/run.py", '        "training data": fingerprint(train),\n', "", "fit_run another_run"),
    Mutant(
        "fit/loop.py",
        "batch_generator(seed, self.at.epoch, self.at.batch)",
        "batch_generator(seed, 0, 0)",
        "fit_augment",
    ),
    Mutant(
        "fit/loop.py",
        "self.seeds if each else self.seeds[:1]\n        generators",
        "self.seeds[:1] * len(x)\n        generators",
        "fit_augment members",
    ),
    Mutant("fit/run.py", '{"augmentation": describe(augment)}', "{}", "fit_augment goes"),
    Mutant("fit/samples.py", 'f"{seed} {epoch} {batch}"', 'f"{seed}{epoch}{batch}"', "fit_samples"),
    Mutant("fit/evaluate.py", "== y).sum(), (y >= 0).sum()", "== y).sum(), (y == y).sum()", "fit_evaluate"),
    Mutant(
        "fit/evaluate.py", "loss(output, y).mean() * counted if", "loss(output, y).mean() * len(y) if", "fit_evaluate"
    ),
    Mutant(
        "fit/evaluate.py", "if y.is_floating_point() else (y >= 0).sum()", "if True else (y >= 0).sum()", "fit_evaluate"
    ),
]
