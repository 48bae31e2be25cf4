"""Defects of captured steps."""

from . import Mutant

MUTANTS = [
    Mutant(
        "execution/capture.py",
        "ok = (before > 0) & verdict(moved)",
        "ok = verdict(moved)",
        "execution_capture bad_step",
    ),
    Mutant(
        "execution/capture.py", "ok = (before > 0) & verdict(moved)", "ok = before > 0", "execution_capture bad_step"
    ),
    Mutant("execution/capture.py", "taken + ok.double()", "taken + 1", "execution_capture bad_step"),
    Mutant(
        "execution/capture.py",
        "torch.where(ok, grown(mu, increment, 1.0, maximum), mu)",
        "grown(mu, increment, 1.0, maximum)",
        "execution_capture bad_step",
    ),
    Mutant(
        "execution/optimizer_on_device.py", "self.optimizer.found_inf = found_inf", "pass", "execution_capture bad_step"
    ),
    Mutant("execution/capture.py", "b.copy_(torch.where(ok, b, old))", "pass", "execution_capture batch_norm"),
    Mutant(
        "execution/optimizer_on_device.py",
        '            self.rates[i].fill_(group["lr"])\n',
        "            pass\n",
        "execution_capture rates",
    ),
    Mutant("execution/capture.py", "self.state[2].fill_(self.known)", "pass", "execution_capture rates"),
    Mutant(
        "execution/capture.py",
        "self.am.penalty.value = self.known = mu",
        "self.known = mu",
        "execution_capture ordinary",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        "if self._options() != self.options:",
        "if False:",
        "execution_capture may_not_change",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        "if self.places is not None and self._places() != self.places:",
        "if False:",
        "execution_capture may_not_change",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        '            for group, rate in zip(groups, before, strict=True):\n                group["lr"] = rate\n',
        "",
        "execution_capture hands_back",
    ),
    Mutant(
        "execution/capture.py",
        "t.zero_() if old is None else t.copy_(old)",
        "pass",
        "execution_recorded recorded_step_is",
    ),
    Mutant(
        "execution/capture.py",
        "t.zero_() if old is None else t.copy_(old)",
        "None if old is None else t.copy_(old)",
        "execution_recorded recorded_step_is",
    ),
    Mutant(
        "execution/capture.py",
        "rest[:hidden], rest[hidden:]",
        "rest[hidden:], rest[:hidden]",
        "execution_capture metrics",
    ),
    Mutant(
        "execution/capture.py",
        "gradients=self.weights.takes_gradients",
        "gradients=True",
        "execution_capture ordinary",
    ),
    Mutant("execution/capture.py", "verdict(moved) & finite", "verdict(moved)", "execution_capture_memory overflows"),
    Mutant(
        "execution/capture.py",
        "if self._places() != self.places:",
        "if False:",
        "execution_capture_memory may_not_change",
    ),
    Mutant(
        "execution/capture.py",
        "*self.optimizer.tensors(), *self.weights.tensors()]",
        "*self.optimizer.tensors()]",
        "execution_recorded recorded_step_is",
    ),
    Mutant(
        "weights/memory.py",
        "old.copy_(new if ok is None else torch.where(ok, new, old))",
        "old.copy_(new)",
        "execution_capture_memory overflows",
    ),
    Mutant(
        "weights/memory.py",
        "q.add_(change if ok is None else torch.where(ok, change, 0.0))",
        "q.add_(change)",
        "execution_capture_memory overflows",
    ),
    Mutant(
        "weights/memory.py",
        "finite & all_finite(R)",
        "True | all_finite(R)",
        "execution_capture_memory overflows",
    ),
    Mutant("weights/memory.py", "memory.A.clone(), R", "memory.A, R", "execution_capture_memory prior"),
    Mutant(
        "execution/capture.py",
        "            self.compiled = self._compute\n",
        "            pass\n",
        "execution_capture within_fusing",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        "if p in grads and p.requires_grad",
        "if p in grads",
        "execution_optimizer_on_device stays",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        'ok & new["weights"].isfinite()',
        "ok | True",
        "execution_optimizer_on_device finite",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        "if self._trained() != self.trained:",
        "if False:",
        "execution_optimizer_on_device frozen",
    ),
    Mutant(
        "execution/optimizer_on_device.py",
        "torch.stack(group).isfinite().all()",
        "True",
        "execution_optimizer_on_device found",
    ),
    Mutant(
        "weights/local.py",
        "self.steps > 1 or self.l1 or self.clip_norm is not None",
        "False",
        "execution_optimizer_on_device top",
    ),
]
