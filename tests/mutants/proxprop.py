"""Defects of ProxProp and of straight-through backprop."""

from . import Mutant

PROXPROP, STRAIGHT = "methods/proxprop.py", "methods/straight_through.py"

MUTANTS = [
    Mutant(PROXPROP, "gram.add_(1) if bias else gram", "gram", "methods_proxprop"),
    Mutant(PROXPROP, ", v.sum(0)", ", delta.sum(0)", "methods_proxprop"),
    Mutant(PROXPROP, "+ 1 / tau_theta)", "+ tau_theta)", "methods_proxprop"),
    Mutant(PROXPROP, "gram.trace() + 1", "0 + 1", "methods_proxprop float32"),
    Mutant(PROXPROP, "A.mT), A), x, alpha=1 / tau_theta", "A.mT), A), x, alpha=tau_theta", "methods_proxprop"),
    Mutant(PROXPROP, "if l == len(self.layers) - 1:", "if False:", "methods_proxprop"),
    Mutant(PROXPROP, "self.activations[l].vjp((), saved[l], above)", "above", "methods_proxprop"),
    Mutant(PROXPROP, "        self.optimizer.zero_grad()\n", "", "methods_proxprop frozen"),
    Mutant(PROXPROP, "        demand_step(loss, self.optimizer)\n", "", "methods_proxprop finite"),
    Mutant(PROXPROP, "nesterov=momentum > 0", "nesterov=False", "methods_proxprop optimizer"),
    Mutant(PROXPROP, "else among_inputs)(a", "else among_samples)(a[:5]", "methods_proxprop"),
    Mutant(STRAIGHT, "            with estimating():\n", "            if True:\n", "methods_straight_through"),
    Mutant(STRAIGHT, "b.copy_(before)", "pass", "methods_straight_through batch_norm"),
    Mutant(STRAIGHT, "            self._demand_finite_buffers(kept)\n", "", "methods_straight_through batch_norm"),
    Mutant("layers.py", "return _estimates.set(True)", "return _estimates.set(False)", "layers"),
    Mutant("calculus/numbers.py", ".item()) or bool(t.isfinite().all())", ".item())", "calculus_numbers"),
    Mutant("methods/layered.py", "if not math.isfinite(value):", "if value != value:", "methods_layered"),
    Mutant("methods/layered.py", "norm * largest <", "norm <", "methods_layered"),
]
