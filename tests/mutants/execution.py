"""Defects of ensembles and equal layers together."""

from . import Mutant

MUTANTS = [
    Mutant("execution/optimizers.py", "lr / (1 - beta1**step)", "lr", "execution_optimizers adam"),
    Mutant("execution/optimizers.py", "(1 - beta2**step) ** 0.5", "1 - beta2**step", "execution_optimizers adam"),
    Mutant("execution/optimizers.py", '"new2": 1 - beta2', '"new2": 1 - beta1', "execution_optimizers adam"),
    Mutant(
        "execution/optimizers.py",
        'c["lr"] * c["weight_decay"] * p, g',
        'c["weight_decay"] * p, g',
        "execution_optimizers adam",
    ),
    Mutant("execution/optimizers.py", "if decoupled else", "if not decoupled else", "execution_optimizers adam"),
    Mutant("execution/optimizers.py", 'lr * c["l1"]', 'c["l1"]', "execution_optimizers digits"),
    Mutant("execution/optimizers.py", "value.to(dtype)", "value", "execution_optimizers digits"),
    Mutant(
        "execution/optimizers.py",
        '        g = g + c["weight_decay"] * p\n',
        "        pass\n",
        "execution_optimizers sgd",
    ),
    Mutant(
        "execution/optimizers.py",
        'c["momentum"] * row["momentum_buffer"] + g',
        'row["momentum_buffer"] + g',
        "execution_optimizers sgd",
    ),
    Mutant("execution/parameters.py", "l1 * (p.ndim > 1)", "l1", "execution_parameters biases"),
    Mutant("execution/parameters.py", 'self.kind == "adamw")', "True)", "execution_parameters torchs"),
    Mutant(
        "execution/parameters.py",
        'soft_threshold(new["weights"], c["threshold"])',
        'new["weights"]',
        "execution_parameters proximal",
    ),
    Mutant("execution/parameters.py", "part.copy_(state[name])", "part", "execution_parameters fro"),
    Mutant(
        "execution/parameters.py",
        'max(float(state.get("step", 0.0)) for state in states)',
        "0.0",
        "execution_parameters fro",
    ),
    Mutant("execution/parameters.py", 'if any(column) or name in ("lr", "eps")', "", "execution_parameters order"),
    Mutant(
        "execution/parameters.py", 'group["lr"] = self.options["lr"][i].item()', "pass", "execution_ensemble schedule"
    ),
    Mutant("execution/parameters.py", 'self.options["lr"][i] = float', "_ = float", "execution_ensemble saved"),
    Mutant("execution/parameters.py", 'and group.get("momentum") != 0', "", "execution_ensemble separate"),
    Mutant("execution/parameters.py", "or not p.requires_grad", "", "execution_parameters frozen"),
    Mutant(
        "execution/members.py", "methods[0].weights.trained}", "methods[0].weights.blocks}", "execution_members frozen"
    ),
    Mutant("execution/members.py", "finite = finite & fit.finite", "pass", "execution_members overflows"),
    Mutant(
        "execution/members.py",
        "grown(mu, am.penalty.increment, 1.0, am.penalty.maximum)",
        "mu + am.penalty.increment",
        "execution_members penalty",
    ),
    Mutant(
        "execution/members.py",
        'grown(state.own["mu"], 0.0, penalty.growth, penalty.maximum)',
        'state.own["mu"] * penalty.growth',
        "execution_ensemble epochs",
    ),
    Mutant("execution/members.py", '("lr", "momentum", "share")', '("lr", "momentum")', "execution_members share"),
    Mutant("execution/members.py", '("forget", "damping", "rate")', '("forget", "rate")', "execution_members am-mem"),
    Mutant(
        "execution/members.py",
        'float("inf") if v is None else v',
        "0.0 if v is None else v",
        "execution_members penalty",
    ),
    Mutant(
        "execution/members.py",
        'torch.float64 if option.owner == "penalty" else self.dtype',
        "torch.float32",
        "execution_members numbers",
    ),
    Mutant(
        "execution/members.py",
        "                m.commit(saved)\n",
        "                pass\n",
        "execution_members layers",
    ),
    Mutant(
        "execution/members.py",
        "[value.clone() for value in state.buffers], {}, {}",
        "state.buffers, {}, {}",
        "execution_compatible label",
    ),
    Mutant(
        "execution/members.py",
        "state.counts + k, self.dtype",
        "state.counts + 1, self.dtype",
        "execution_members inner",
    ),
    Mutant(
        "execution/members.py",
        "self.rest.after(l, residual, first[l], theta[l])",
        "residual",
        "execution_members inner",
    ),
    Mutant("execution/members.py", "            theta = self._theta(rows)\n", "", "execution_members inner"),
    Mutant("execution/members.py", "state.counts + self.steps", "state.counts + 1", "execution_members inner"),
    Mutant("execution/members.py", "(norm + 1e-6)).clamp_max(1.0)", "(norm + 1e-6))", "execution_members clipped"),
    Mutant(
        "execution/members.py",
        "for group in grads for g in group) ** 0.5",
        "for group in grads[:1] for g in group[:1]) ** 0.5",
        "execution_members clipped",
    ),
    Mutant("execution/members.py", "verdict(moved), state", "moved.loss.isfinite(), state", "execution_ensemble code"),
    Mutant(
        "execution/members.py",
        "grads, {}, buffers, state.counts + 1, {}",
        "grads, {}, buffers, state.counts, {}",
        "execution_members adam",
    ),
    Mutant("execution/members.py", "_put(self.slots, kept)", "pass", "execution_ensemble alone"),
    Mutant("execution/members.py", "if kept.samples:", "if False:", "execution_ensemble am-mem"),
    Mutant(
        "execution/members.py",
        "self.integers = self.method.chain.blocks[0].takes_integers",
        "self.integers = False",
        "execution_members integers",
    ),
    Mutant(
        "execution/ensemble.py",
        "sound & found.finite & total.isfinite()",
        "sound & found.finite",
        "execution_ensemble weights",
    ),
    Mutant(
        "execution/ensemble.py",
        "alive & sound & found.finite",
        "alive & found.finite",
        "execution_ensemble rectifier",
    ),
    Mutant("execution/ensemble.py", "alive &= good | ~sound", "alive &= good", "execution_ensemble passes"),
    Mutant(
        "execution/ensemble.py",
        "    _keep(good, (new,",
        "    _keep(good | True, (new,",
        "execution_ensemble diverges",
    ),
    Mutant(
        "execution/ensemble.py",
        "_keep(self.alive, torch.func",
        "_keep(self.alive | True, torch.func",
        "execution_ensemble remembered",
    ),
    Mutant("execution/ensemble.py", "state.taken.add_(good)", "state.taken.add_(1)", "execution_ensemble diverges"),
    Mutant("execution/ensemble.py", "taken[i] + 1 for i", "taken[i] for i", "execution_ensemble diverges"),
    Mutant(
        "execution/ensemble.py",
        'self.alive.copy_(torch.tensor(state["alive"]))',
        "pass",
        "execution_ensemble remembered",
    ),
    Mutant("execution/ensemble.py", "if self._random and not each:", "if False:", "execution_members dropout"),
    Mutant(
        "execution/ensemble.py",
        "                self._check_labels(i, *((x[i], y[i]) if each else (x, y)))\n",
        "                pass\n",
        "execution_compatible batch",
    ),
    Mutant(
        "execution/ensemble.py",
        "copy.deepcopy(self.member(i)).eval()(x[:1])",
        "self.member(i)(x[:1])",
        "execution_compatible label",
    ),
    Mutant(
        "execution/ensemble.py",
        "value.masked_fill(~part, torch.nan) for",
        "value for",
        "execution_ensemble diverges",
    ),
    Mutant(
        "execution/ensemble.py",
        "loss = found.loss.masked_fill(~(self.alive & sound), torch.nan)",
        "loss = found.loss",
        "execution_ensemble advance",
    ),
    Mutant("execution/ensemble.py", "None if mu is None else mu.clone()", "mu", "execution_members am-sgd"),
    Mutant(
        "execution/ensemble.py",
        "whole[i].clone(), self._state.own",
        "whole[i], self._state.own",
        "execution_ensemble copies",
    ),
    Mutant("execution/ensemble.py", "m._buffers[name] = mine", "pass", "execution_members batch"),
    Mutant("execution/ensemble.py", 'if group.kind != "frozen":', "if group.optimized:", "execution_members am-mem"),
    Mutant("execution/compatible.py", "type(None), Tensor)", "type(None))", "execution_compatible tensors"),
    Mutant(
        "execution/compatible.py",
        'and getattr(rule, "steps", 1) is getattr(rule, "sweeps", 1) is None',
        "",
        "execution_compatible sweeps",
    ),
    Mutant("execution/compatible.py", 'ignored=("lr", "l1")', "ignored=()", "execution_members am-adam"),
    Mutant(
        "execution/compatible.py", "if owners.setdefault(id(p), i) != i:", "if False:", "execution_compatible shared"
    ),
    Mutant(
        "execution/compatible.py",
        '    yield "decoupled weight decay"',
        '    _ = "decoupled weight decay"',
        "execution_compatible decay",
    ),
    Mutant("execution/stacked.py", "scales[1:] * scales[1:]", "scales[:-1] * scales[:-1]", "execution_stacked"),
    Mutant("execution/stacked.py", "return deltas.sum(1)", "return deltas.mean(1)", "execution_stacked"),
    Mutant(
        "execution/stacked.py",
        "products.batched(deltas.mT, inputs.flatten(1, -2))",
        "products.batched(deltas.mT, inputs.flatten(1, -2)).mT",
        "execution_stacked",
    ),
    Mutant(
        "execution/stacked.py",
        "[None, *(_kind(block) for block in chain.blocks[1:-1])]",
        "[_kind(block) for block in chain.blocks[:-1]]",
        "execution_stacked",
    ),
    Mutant(
        "execution/stacked.py", " and all(p.is_contiguous() for p in block.parameters())", "", "execution_stacked rows"
    ),
    Mutant("execution/stacked.py", "        w.data = part\n", "        pass\n", "execution_stacked views"),
    Mutant(
        "execution/recorded.py",
        "values = self.program.replay().clone()",
        "values = self.program.replay()",
        "execution_recorded recorded_step_is",
    ),
    Mutant(
        "execution/recorded.py",
        "        self.x.copy_(x, non_blocking=True)\n",
        "",
        "execution_recorded recorded_step_is",
    ),
    Mutant(
        "execution/recorded.py",
        "        self.y.copy_(y, non_blocking=True)\n",
        "",
        "execution_recorded recorded_step_is",
    ),
    Mutant("execution/recorded.py", "        self.captured.push()\n", "", "execution_recorded schedule"),
    Mutant(
        "execution/recorded.py",
        "        if self.unseen >= LOOK:\n            self.look()\n",
        "",
        "execution_recorded waits_longer",
    ),
    Mutant(
        "execution/recorded.py",
        "step {taken + 1} of the last",
        "step {taken} of the last",
        "execution_recorded not_finite",
    ),
    Mutant(
        "execution/recorded.py",
        "        self.check_state(state)\n        self.program = None\n",
        "        self.check_state(state)\n",
        "execution_recorded state_is_loaded",
    ),
    Mutant(
        "execution/recorded.py",
        "        self.look()\n        return self.method.step(x, y, **how)",
        "        return self.method.step(x, y, **how)",
        "execution_recorded another_shape",
    ),
    Mutant(
        "execution/recorded.py",
        "        self.look()\n        self.method.end_epoch()",
        "        self.method.end_epoch()",
        "execution_recorded not_finite",
    ),
    Mutant("training/on_device.py", "cursor.add_(1)", "cursor", "training_on_device whole_epochs"),
    Mutant(
        "training/on_device.py", "lambda: [cursor, *step.tensors()]", "step.tensors", "training_on_device order_drawn"
    ),
    Mutant("training/on_device.py", ".remainder_(full)", "", "training_on_device whole_epochs"),
    Mutant(
        "training/on_device.py", "        step.push()\n        for", "        for", "training_on_device whole_epochs"
    ),
    Mutant("training/on_device.py", "        method.end_epoch()\n", "", "training_on_device whole_epochs"),
    Mutant(
        "training/on_device.py",
        "**how).loss, full + 1",
        "**how).loss, full",
        "training_on_device whole_epochs",
    ),
    Mutant("training/on_device.py", "                step.push()\n", "", "training_on_device rates"),
    Mutant(
        "training/on_device.py",
        "            plan.after_batch(epoch * per_epoch + full)\n",
        "",
        "training_on_device rates",
    ),
    Mutant("training/on_device.py", "        plan.after_epoch(epoch + 1)\n", "", "training_on_device rates"),
    Mutant(
        "training/on_device.py",
        "batch_generator(seed, epoch, number)",
        "batch_generator(seed, epoch, 0)",
        "training_on_device",
    ),
    Mutant(
        "training/on_device.py", "for t in (order, numbers))", "for t in (order, order))", "training_on_device changes"
    ),
    Mutant("training/on_device.py", "batch {taken + 1} of", "batch {taken} of", "training_on_device bad_sample"),
    Mutant(
        "training/on_device.py", 'f"{seed} {epoch}".encode()', 'f"{seed} 0".encode()', "training_on_device order_drawn"
    ),
    Mutant(
        "training/on_device.py",
        ".unflatten(1, (full, batch_size)).transpose(0, 1)",
        ".unflatten(1, (batch_size, full)).transpose(1, 2).transpose(0, 1)",
        "training_on_device whole_epochs",
    ),
    Mutant(
        "execution/stacked.py", "x - _column(scales[:-1], x) * u", "x - _column(scales[1:], x) * u", "execution_stacked"
    ),
    Mutant(
        "execution/stacked.py",
        "longest * bound.flip(0).cumprod(0).flip(0)",
        "longest * bound.cumprod(0)",
        "execution_stacked",
    ),
    Mutant("execution/stacked.py", "torch.cat([u[1:], offset.unsqueeze(0)])", "delta[1:]", "execution_stacked"),
    Mutant(
        "execution/stacked.py",
        "products.batched(u.flatten(1, -2), run.W.mT)",
        "products.batched(u.flatten(1, -2), run.W)",
        "execution_stacked",
    ),
    Mutant(
        "execution/stacked.py",
        'left = r if self.solver.order == "codes-first" else delta[1:]',
        "left = r",
        "execution_stacked",
    ),
    Mutant(
        "execution/stacked.py",
        "length_bound(squares[1:], squares[:-1], share)",
        "length_bound(squares[:-1], squares[1:], share)",
        "execution_stacked",
    ),
]
