"""Defects of learning tasks one after the other."""

from . import Mutant

MUTANTS = [
    Mutant("continual/tasks.py", "[number == k for", "[number >= k for", "continual_tasks split"),
    Mutant(
        "continual/tasks.py", "generator=generator) if k else None", "generator=generator)", "continual_tasks first"
    ),
    Mutant("continual/measures.py", "a[j:-1]", "a[j:]", "continual_measures forgetting negative"),
    Mutant("continual/measures.py", "max(row[j]", "min(row[j]", "continual_measures forgetting"),
    Mutant("continual/measures.py", "return mean(a[-1])", "return mean(a[-1][:-1])", "continual_measures average"),
    Mutant("continual/replay.py", "torch.randint(n + 1, ())", "torch.randint(n, ())", "continual_replay late"),
    Mutant("continual/replay.py", "        self.seen += len(x)\n", "        self.seen += 1\n", "continual_replay"),
    Mutant("continual/replay.py", "self._slot(self.seen + i)", "self._slot(self.seen)", "continual_replay"),
    Mutant("continual/replay.py", ".round().clamp(0, LEVELS)", ".clamp(0, LEVELS)", "continual_replay levels"),
    Mutant("continual/replay.py", ".round().clamp(0, LEVELS)", ".round()", "continual_replay clipped"),
    Mutant("continual/replay.py", "x[0].numel() + 1", "x[0].numel()", "continual_replay byte"),
    Mutant(
        "continual/replay.py",
        "        self.buffer.add(x, y)\n",
        "        self.buffer.add(*joined)\n",
        "continual_replay",
    ),
    Mutant("continual/ewc.py", "gradients.square().sum(0)", "gradients.sum(0).square()", "continual_ewc fisher"),
    Mutant("continual/ewc.py", "sums / len(x)", "sums / CHUNK", "continual_ewc fisher"),
    Mutant("continual/ewc.py", "alpha=self.strength", "alpha=2 * self.strength", "continual_ewc autograd"),
    Mutant("continual/ewc.py", "value + self.importance.get(name, 0.0)", "value", "continual_ewc autograd"),
    Mutant("continual/ewc.py", "p.detach().clone() for", "p.detach() for", "continual_ewc autograd"),
    Mutant("continual/slda.py", "self.counts * new / total", "new * new / total", "continual_slda order"),
    Mutant("continual/slda.py", "z - means[y]", "z - self.means[y]", "continual_slda order"),
    Mutant("continual/slda.py", "between * (new / total", "between * (new / new", "continual_slda order"),
    Mutant("continual/slda.py", "(1 - self.shrinkage) * C", "C", "continual_slda order"),
    Mutant("continual/slda.py", "(weight * self.means).sum(1) / 2", "(weight * self.means).sum(1)", "continual_slda"),
    Mutant("continual/slda.py", "bias[self.counts == 0] =", "bias[self.counts < 0] =", "continual_slda seen"),
    Mutant("continual/falling_rate.py", "1 / (1 + t / batches)", "1 / (1 + t * batches)", "continual_falling_rate"),
    Mutant(
        "continual/learners.py",
        "_bytes(learner.state_dict()) - moments",
        "_bytes(learner.state_dict())",
        "continual_learners",
    ),
    Mutant("continual/run.py", "k * epochs + epoch)", "epoch)", "continual_run epoch"),
    Mutant("continual/run.py", "        learner.end_task(task.train)\n", "", "continual_run epoch"),
    Mutant("continual/run.py", "        torch.manual_seed(seed)\n", "", "continual_run again"),
    Mutant("models/freeze.py", "in layers[:-1]", "in layers[:1]", "models_freeze hidden"),
]
