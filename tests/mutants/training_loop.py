"""Defects of data, metrics, callbacks, averages, torch's schedulers, clipping and weight decay in training runs."""

from . import Mutant

MUTANTS = [
    Mutant(
        "training/epochs.py",
        "source.passed(epoch, self.per_epoch)",
        "source.passed(epoch, None)",
        "training_epochs cut_short",
    ),
    Mutant("training/epochs.py", "if number < (self.per_epoch or 1):", "if False:", "training_epochs"),
    Mutant("training/epochs.py", "if source.once and epochs > 1 and", "if False and", "training_epochs refused"),
    Mutant(
        "training/epochs.py",
        "                generator.set_state(own)\n",
        "                pass\n",
        "training_epochs shuffling",
    ),
    Mutant(
        "training/sources.py", "                tell(epoch)\n", "                tell(0)\n", "training_epochs sampler"
    ),
    Mutant(
        "training/sources.py",
        "            generator.set_state(state)\n",
        "            pass\n",
        "training_sources trace",
    ),
    Mutant("training/sources.py", "with torch.random.fork_rng([]):", "if True:", "training_sources trace"),
    Mutant(
        "training/sources.py",
        'dtype if array.dtype.kind == "f" else torch.int64',
        "torch.float32",
        "training_sources arrays",
    ),
    Mutant("training/metrics.py", "output.topk(k, axis)", "output.topk(k + 1, axis)", "training_metrics"),
    Mutant("training/metrics.py", "1 - left / all_", "1 - 2 * left / all_", "training_metrics"),
    Mutant("training/metrics.py", "(y - y.mean(0)).square()", "y.square()", "training_metrics"),
    Mutant(
        "training/metrics.py",
        "_errors(output, y).square().mean().sqrt()",
        "_errors(output, y).square().mean()",
        "training_metrics",
    ),
    Mutant("training/metrics.py", "    if output.shape != y.shape:\n", "    if False:\n", "training_metrics"),
    Mutant("training/callbacks.py", "> self.min_delta", "> 0", "training_callbacks"),
    Mutant("training/callbacks.py", "self.sign = 1.0 if higher else -1.0", "self.sign = 1.0", "training_callbacks"),
    Mutant(
        "training/callbacks.py",
        "return self.waited >= self.patience",
        "return self.waited > self.patience",
        "training_callbacks",
    ),
    Mutant("training/callbacks.py", "if value != value or (self.best", "if (self.best", "training_callbacks number"),
    Mutant(
        "training/callbacks.py",
        '{**super().state_dict(), "waited": self.waited}',
        '{**super().state_dict(), "waited": 0}',
        "training_callbacks",
    ),
    Mutant(
        "training/callbacks.py",
        "copy.deepcopy(dict(progress.evaluated.state_dict()))",
        "dict(progress.evaluated.state_dict())",
        "training_callbacks",
    ),
    Mutant(
        "training/callbacks.py", "progress.evaluated.state_dict()", "progress.model.state_dict()", "training_ema best"
    ),
    Mutant("training/callbacks.py", 'not hasattr(each, "evaluated_model")', "0", "training_ema best"),
    Mutant("training/run.py", "                loop.stopped = callbacks.stopped\n", "", "training_callbacks goes_on"),
    Mutant(
        "training/run.py",
        "        if loop.stopped and inside and not saved:\n",
        "        if False:\n",
        "training_callbacks inside",
    ),
    Mutant("training/run.py", "            callbacks.close()\n", "            pass\n", "training_callbacks closed"),
    Mutant(
        "training/loop.py",
        "if self.stopped and self.at.batch != self.per_epoch:",
        "if self.stopped:",
        "training_callbacks last",
    ),
    Mutant(
        "training/loop.py", "self.callbacks.evaluated(self.trained.member(i))", "self.trained.member(i)", "training_ema"
    ),
    Mutant(
        "training/ema.py",
        "self._update = get_ema_multi_avg_fn(decay)",
        "self._update = get_ema_multi_avg_fn(1 - decay)",
        "training_ema",
    ),
    Mutant("training/ema.py", "[*model.parameters(), *model.buffers()]", "[*model.parameters()]", "training_ema"),
    Mutant(
        "training/ema.py",
        "            progress.model.load_state_dict(self.average.state_dict())\n",
        "            pass\n",
        "training_ema",
    ),
    Mutant("training/ema.py", '            average.load_state_dict(state["average"])\n', "", "training_ema goes_on"),
    Mutant(
        "training/scheduler.py",
        "if not self.by_epoch:\n            self.scheduler",
        "if self.by_epoch:\n            self.scheduler",
        "training_scheduler",
    ),
    Mutant("training/scheduler.py", "        if self.own:\n", "        if False:\n", "training_scheduler"),
    Mutant(
        "training/scheduler.py",
        "        self.scheduler.load_state_dict(_typed(state, vars(self.scheduler)))\n",
        "        pass\n",
        "training_scheduler goes_on",
    ),
    Mutant(
        "training/scheduler.py",
        "if higher is not None and higher !=",
        "if False and higher !=",
        "training_scheduler refused",
    ),
    Mutant("training/scheduler.py", "found[name] = Counter(value)", "pass", "training_scheduler goes_on"),
    Mutant(
        "methods/backprop.py",
        "        if self.clip_norm is not None:\n            clip(",
        "        if False:\n            clip(",
        "methods_backprop",
    ),
    Mutant(
        "methods/straight_through.py",
        "        self.backprop.update()\n",
        "        self.optimizer.step()\n",
        "methods_backprop clipped",
    ),
    Mutant(
        "execution/members.py",
        "grads = clipped(grads, self.method.clip_norm)",
        "grads = list(grads)",
        "methods_backprop member",
    ),
    Mutant("weights/decay.py", '"weight_decay": 0.0}', '"weight_decay": 0.1}', "weights_decay"),
    Mutant("weights/decay.py", "if p.ndim <= 1 or", "if", "weights_decay"),
    Mutant("weights/decay.py", "isinstance(m, NORMALISATIONS)", "False", "weights_decay matrix"),
    Mutant("weights/local.py", '{"weight_decay": 0.0} if bare', '{"weight_decay": 0.1} if bare', "weights_decay"),
    Mutant(
        "methods/alternating.py",
        "rule = LocalSGD(lr, momentum, weight_decay, l1, steps, clip_norm, decay_biases)",
        "rule = LocalSGD(lr, momentum, weight_decay, l1, steps, None, decay_biases)",
        "weights_torch",
    ),
]
