"""Defects of f, the code update, the step, the trainer, the weight rules and mu."""

from . import Mutant

MUTANTS = [
    Mutant("objective.py", "mu / term.samples(output) * misfit", "mu * misfit", "objective"),
    Mutant(
        "codes/gradient.py",
        "self.price = 2 * mu / self.unit",
        "self.price = mu / self.unit",
        "codes_gradient reference",
    ),
    Mutant("codes/gradient.py", "self.price = 2 * mu / self.unit", "self.price = 2 * mu", "codes_gradient reference"),
    Mutant(
        "codes/gradient.py",
        "return block.replay(p, state, shifted(code, u, a))",
        "return block.replay(p, state, shifted(code, u, -a))",
        "codes_gradient reference",
    ),
    Mutant(
        "codes/gradient.py",
        "return At(inner(r, r) / 2, r if",
        "return At(inner(r, r), r if",
        "codes_gradient reference",
    ),
    Mutant(
        "codes/gradient.py",
        "r if self.offset is None else r + (self.delta - self.offset)",
        "r",
        "codes_gradient below_kinks",
    ),
    Mutant(
        "codes/gradient.py",
        "Q, moved = block.quotient(p, state, u, self.scale * a, Ju)",
        "Q, moved = block.quotient(p, state, u, a, Ju)",
        "codes_gradient reference",
    ),
    Mutant(
        "codes/gradient.py",
        "m * (2 * at.value), m * self.offset_square",
        "m * at.value, m * self.offset_square",
        "trainer metrics",
    ),
    Mutant(
        "codes/gradient.py",
        "m * (2 * at.value), m * self.offset_square",
        "m * (2 * at.value), m * self.square",
        "trainer metrics",
    ),
    Mutant(
        "codes/gradient.py",
        'delta = at.delta if order == "codes-first" else self.delta',
        "delta = at.delta",
        "codes_gradient reference",
    ),
    Mutant(
        "codes/gradient.py",
        "return delta + change / at_least(scale, TINY)",
        "return delta + change",
        "weights_local inner",
    ),
    Mutant(
        "codes/gradient.py",
        "self.loss.at((self.position if output is None else output) + change, self.y).delta",
        "at.delta",
        "weights_local inner",
    ),
    Mutant("codes/gradient.py", "g = g if v is None else along(g, -kappa, v)", "g = g", "codes_gradient several"),
    Mutant("codes/gradient.py", "else g + self.momentum * w", "else g", "codes_gradient fixed"),
    Mutant(
        "codes/gradient.py",
        "new_v = new_v if l1 is None else _shrunk(code, new_v, m, a * l1)",
        "pass",
        "codes_gradient l1",
    ),
    Mutant(
        "codes/gradient.py",
        "ok = falls if Jw is not None and not block.estimated else True",
        "ok = True",
        "codes_gradient rises taken",
    ),
    Mutant("codes/gradient.py", "                a = 0 * a\n", "                pass\n", "codes_gradient taken"),
    Mutant(
        "codes/gradient.py",
        "self.l1 / len(code) if self.l1 else None",
        "self.l1 if self.l1 else None",
        "codes_gradient l1",
    ),
    Mutant("codes/gradient.py", "select(ok, new, old)", "new", "codes_gradient not_read"),
    Mutant(
        "codes/gradient.py",
        "a = root(over(inner(v, v), square))",
        "a = over(inner(v, v), square)",
        "codes_gradient several",
    ),
    Mutant("codes/gradient.py", "v + threshold * moved.sign()", "v - threshold * moved.sign()", "codes_gradient l1"),
    Mutant(
        "codes/gradient.py",
        'residual = fitted([moved], r if order == "codes-first" else above.delta',
        'residual = fitted([moved], r if order != "codes-first" else above.delta',
        "codes_gradient reference",
    ),
    Mutant(
        "codes/gradient.py",
        "return residual, Ask(block.spread(state, g), gg,",
        "return residual, Ask(block.spread(state, u), uu,",
        "codes_gradient tied",
    ),
    Mutant(
        "codes/gradient.py",
        "offset = None if room is None else",
        "offset = None if True else",
        "codes_gradient reference",
    ),
    Mutant("codes/gradient.py", "self.tolerance and bool(", "False and bool(", "codes_gradient tolerance"),
    Mutant("codes/gradient.py", "self.lr * above.unit, None, None", "self.lr, None, None", "codes_gradient fixed"),
    Mutant(
        "codes/linesearch.py",
        "best = over(gw, inner(Jw, HJw) + price * ww)",
        "best = over(gw, inner(Jw, Jw) + price * ww)",
        "codes_linesearch",
    ),
    Mutant(
        "codes/linesearch.py",
        "over(share * root(square), root(inner(HJw, HJw)))",
        "over(share * root(square), root(inner(Jw, Jw)))",
        "codes_gradient reference",
    ),
    Mutant(
        "codes/linesearch.py",
        "new = at + kappa / 2 * vv + growth",
        "new = at + kappa * vv + growth",
        "codes_linesearch",
    ),
    Mutant(
        "codes/linesearch.py", "least(over(dd, gg + dd), over(share * dd, gg))", "over(dd, gg + dd)", "codes_linesearch"
    ),
    Mutant("codes/linesearch.py", "u = g.minimum(room / at_least(longest * bound, TINY))", "u = g", "codes_linesearch"),
    Mutant("codes/linesearch.py", "g = g if x is None else gate(g, x)", "g = g", "codes_linesearch"),
    Mutant("codes/linesearch.py", "over(share * root(dd), root(qq)), bound)", "bound)", "codes_gradient share"),
    Mutant(
        "codes/linesearch.py", "inner(delta if offset is None else offset, q)", "inner(delta, q)", "codes_linesearch"
    ),
    Mutant("codes/linesearch.py", "oo - a * (2 * slope - a * qq)", "oo - a * (slope - a * qq)", "codes_linesearch"),
    Mutant(
        "codes/linesearch.py", "m, below = scale * scale, scale * a", "m, below = scale, scale * a", "codes_linesearch"
    ),
    Mutant("codes/linesearch.py", "below, longest * bound\n", "below, longest\n", "codes_linesearch"),
    Mutant("step.py", "costs[::-1], moved[::-1]", "costs, moved[::-1]", "step"),
    Mutant("step.py", "found[::-1], mu / top.unit", "found[::-1], mu", "step"),
    Mutant("step.py", "found[::-1], mu", "found, mu", "step"),
    Mutant("step.py", "number(first) + 0 * top.start.value", "number(first)", "step overflow"),
    Mutant("step.py", "finite(step.objective + 0 * step.checked)", "finite(step.objective)", "step"),
    Mutant(
        "step.py", "self.costs[-1] + self.price * sum(self.costs[:-1])", "self.costs[-1] + sum(self.costs[:-1])", "step"
    ),
    Mutant("step.py", "(p.abs() - threshold)", "(p.abs() + threshold)", "step"),
    Mutant("trainer.py", "self.penalty.step()\n        return", "return", "penalty"),
    Mutant("trainer.py", "raise self._not_finite(x, y)", "pass", "trainer_errors"),
    Mutant("trainer.py", "(x.dtype != first.dtype and not integers)", "False", "trainer_errors"),
    Mutant("trainer.py", "return [(float(cost) / size) ** 0.5", "return [(float(cost) / size)", "trainer metrics"),
    Mutant(
        "weights/local.py",
        "if p.requires_grad:\n                    p.grad",
        "if True:\n                    p.grad",
        "weights_local frozen",
    ),
    Mutant(
        "weights/local.py",
        "grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)",
        "grad",
        "weights_local memory",
    ),
    Mutant(
        "weights/local.py",
        "Gathered([g * samples for g in grads], samples)",
        "Gathered(list(grads), samples)",
        "weights_local parts",
    ),
    Mutant("weights/local.py", "[g / each.samples for g in each.grads]", "each.grads", "weights_local parts"),
    Mutant("weights/local.py", "delta=residual.after(change)", "delta=residual.delta", "weights_local inner"),
    Mutant(
        "weights/local.py", "step += 1 if found_inf is None else 1 - found_inf", "step += 1", "weights_torch finite"
    ),
    Mutant(
        "weights/local.py",
        'torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_',
        "torch._fused_adam_",
        "weights_local adam_by_hand",
    ),
    Mutant(
        "weights/local.py", "                    if p.ndim > 1:\n", "                    if True:\n", "weights_local l1"
    ),
    Mutant(
        "weights/local.py", "groups.setdefault(rate, [])", "groups.setdefault(0.1, [])", "weights_local own_learning"
    ),
    Mutant(
        "weights/local.py",
        "if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks:",
        "if False:",
        "weights_torch hooks",
    ),
    Mutant("weights/memory.py", "self.rate * len(residual.delta)", "self.rate", "weights_memory rate"),
    Mutant("weights/memory.py", "_join(p) @ A - times *", "_join(p) @ A + times *", "weights_memory"),
    Mutant("weights/memory.py", "_join(p) @ A - times *", "- times *", "weights_memory"),
    Mutant(
        "weights/memory.py",
        "times = residual.scale if self.rate is None",
        "times = 1.0 if self.rate is None",
        "weights_memory",
    ),
    Mutant("weights/memory.py", "memory.A / memory.samples", "memory.A", "weights_memory"),
    Mutant("weights/memory.py", ".fade(self.forget) +", "+", "weights_memory"),
    Mutant("weights/memory.py", "ridge = damping * A.diagonal().mean()", "ridge = damping", "weights_memory"),
    Mutant("weights/memory.py", "(B[:, j] - W @ A[:, j]) / A[j, j]", "(B[:, j]) / A[j, j]", "weights_memory"),
    Mutant("penalty.py", "new = mu * growth + increment", "new = mu + increment", "penalty"),
    Mutant("penalty.py", "new = mu * growth + increment", "new = mu * growth", "penalty"),
    Mutant("penalty.py", "else min(new, maximum)", "else new", "penalty"),
    Mutant("penalty.py", "else new.clamp_max(maximum)", "else new", "penalty"),
    Mutant("state.py", "if (tuple(value.shape), value.dtype) != (shape, like.dtype)", "if False", "state"),
    Mutant("state.py", "if complete and lacking and any(entries.values()):", "if False:", "state"),
    Mutant("state.py", "torch.empty_like(p).copy_(value.detach())", "value.detach().clone()", "state otherwise"),
    Mutant("state.py", "value.detach().clone() if own is None else own", "value.detach().clone()", "state share"),
    Mutant("state.py", "if p.requires_grad and not _dense(p):", "if False:", "state memory"),
    Mutant("state.py", "        if start < limit:\n", "        if False:\n", "state memory"),
    Mutant("state.py", "        _check_group(own, group, optimizer.defaults, n)\n", "        pass\n", "state"),
    Mutant("state.py", "if number != int(number):", "if False:", "state"),
    Mutant("penalty.py", 'demand_number(state["value"], "mu", 0.0)', "pass", "state"),
    Mutant(
        "trainer.py",
        '            self.weights.check_state(state["weights"])\n',
        "            pass\n",
        "state refused_by_name",
    ),
    Mutant("weights/memory.py", '        self.rest.check_state(state["rest"])\n', "", "state rest"),
    Mutant("execution/ensemble.py", "            method.check_state(own)\n", "", "state ensemble"),
    Mutant("describe.py", "        parts.update(value._buffers)\n", "", "describe"),
]
