"""Defects of training loops, schedules and checkpoints."""

from . import Mutant

MUTANTS = [
    Mutant(
        "training/epochs.py",
        "source.order(seed, epoch) for",
        "source.order(0, epoch) for",
        "training_loop depends",
    ),
    Mutant(
        "training/epochs.py",
        "source.order(seed, epoch) for",
        "source.order(seed, 0) for",
        "training_loop",
    ),
    Mutant("training/epochs.py", "range(start * self.batch_size,", "range(0,", "training_run any_batch"),
    Mutant("training/loop.py", "self.schedule.after_batch(self.number)", "pass", "training_loop"),
    Mutant("training/loop.py", "divmod(number - 1, self.per_epoch)", "divmod(number, self.per_epoch)", "training_loop"),
    Mutant("training/schedule.py", "            self._multiply(1.0)\n", "            pass\n", "training_loop"),
    Mutant("training/schedule.py", "        self.after_batch(batches)\n", "", "training_schedule"),
    Mutant("training/schedule.py", "        self.after_epoch(epochs)\n", "", "training_schedule"),
    Mutant("training/schedule.py", "(step + 1) / (self.warmup + 1)", "step / self.warmup", "training_schedule"),
    Mutant("training/schedule.py", "/ (self.steps - self.warmup)", "/ self.steps", "training_schedule"),
    Mutant("training/schedule.py", "half_wave(1 / 25, 1.0, t / 0.3)", "half_wave(1 / 25, 1.0, t)", "training_schedule"),
    Mutant("training/schedule.py", "end + (start - end) * (1 +", "end + (start - end) * (1 -", "training_schedule"),
    Mutant("training/run.py", "                loop.schedule.begin(0, 0)\n", "", "training_schedule goes_on"),
    Mutant("training/augment.py", 'getattr(method, "takes_rows", False)', "False", "training_augment again"),
    Mutant("training/loop.py", "torch.stack([y for _, y in parts])", "y", "training_augment members"),
    Mutant(
        "training/loop.py",
        "return self.at.before + self.at.batch",
        "return self.at.batch",
        "training_loop",
    ),
    Mutant("training/loop.py", "count = max(1, self.at.batch - len(self.unread))", "count = 1", "training_loop"),
    Mutant("training/schedule.py", 'group["lr"].copy_(rate) if', 'group["lr"] if', "execution_ensemble schedule"),
    Mutant(
        "training/checkpoint.py",
        'header["digest"] == _digest(header["state"], tensors)',
        "True",
        "training_checkpoint flipped",
    ),
    Mutant("training/checkpoint.py", "        found.update(entries(x))\n", "", "training_checkpoint flipped places"),
    Mutant(
        "training/checkpoint.py",
        "for key in (*self.config, *there):",
        "for key in self.config:",
        "training_checkpoint side",
    ),
    Mutant(
        "training/checkpoint.py", "            discard(Path(self.path))\n", "            pass\n", "training_run killed"
    ),
    Mutant(
        "training/identity.py",
        '("codes", "weights", "penalty", "loss")',
        '("weights", "penalty", "loss")',
        "training_identity",
    ),
    Mutant(
        "training/identity.py", "torch.linspace(0, len(x) - 1,", "torch.linspace(0, len(x) // 2,", "training_identity"
    ),
    Mutant(
        "training/identity.py",
        "parts = [part[rows.to(part.device)] for part in (x, y)]",
        "parts = [x[rows]]",
        "training_identity",
    ),
    Mutant("training/resumed.py", '    check_module(method.model, state["model"])\n', "", "training_resumed"),
    Mutant(
        "training/resumed.py",
        "if not math.isclose(rate, expected, rel_tol=1e-6, abs_tol=1e-12):",
        "if False:",
        "training_resumed",
    ),
    Mutant("training/resumed.py", '    _check_random(state["random"], loop.device)\n', "", "training_resumed"),
    Mutant(
        "training/resumed.py",
        "(loop.per_epoch or 1) if inside else 1",
        "loop.per_epoch or 1",
        "training_resumed finished",
    ),
    Mutant("training/run.py", "        **method_settings(method),\n", "", "training_run other_parts"),
    Mutant("training/epochs.py", ', "training data": self.source.describe()', "", "training_run another_run"),
    Mutant(
        "training/loop.py",
        "batch_generator(seed, self.at.epoch, self.at.batch)",
        "batch_generator(seed, 0, 0)",
        "training_augment",
    ),
    Mutant(
        "training/loop.py",
        "self.seeds if each else self.seeds[:1]\n        generators",
        "self.seeds[:1] * len(x)\n        generators",
        "training_augment members",
    ),
    Mutant("training/run.py", '{"augmentation": describe(augment)}', "{}", "training_augment goes"),
    Mutant("training/samples.py", 'f"{seed} {epoch} {batch}"', 'f"{seed}{epoch}{batch}"', "training_samples"),
    Mutant(
        "training/metrics.py",
        "argmax(axis) == y).sum(), (y >= 0).sum()",
        "argmax(axis) == y).sum(), (y == y).sum()",
        "training_evaluate",
    ),
    Mutant(
        "training/metrics.py",
        "loss(output, y).mean() * counted if",
        "loss(output, y).mean() * len(y) if",
        "training_evaluate",
    ),
    Mutant(
        "training/metrics.py",
        "if y.is_floating_point() else (y >= 0).sum()",
        "if True else (y >= 0).sum()",
        "training_evaluate",
    ),
]
