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
    Mutant("fit/loop.py", "            self.schedule.set(0)\n", "            pass\n", "fit_loop"),
    Mutant("fit/loop.py", "return self.at.epoch * self.per_epoch + self.at.batch", "return self.at.batch", "fit_loop"),
    Mutant("fit/loop.py", "count = max(1, self.at.batch - len(self.unread))", "count = 1", "fit_loop"),
    Mutant("fit/schedule.py", 'group["lr"].copy_(rate) if', 'group["lr"] if', "execution_members schedule"),
]
