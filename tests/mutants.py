"""Injects one-line defects into a copy of the package; the tests must notice each. Run by `make mutants`.

Every mutant is a file, a piece of its text, what to put in its place, and the tests that should fail. A piece that is
no longer in the file, or a defect that no test notices, makes the run fail. `python tests/mutants.py sweep` runs only
those whose file, text or replacement contains "sweep". MUTANT_WORKERS is the number of mutants tested at once, else 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = [
    "maps",
    "blocks",
    "codes",
    "weights",
    "memory",
    "penalty",
    "objective",
    "trainer",
    "recurrent",
    "recurrent_layers",
    "discrete",
    "discrete_codes",
    "theory",
    "theory_network",
    "theory_cli",
    "precision",
    "precision_cli",
    "bench",
    "bench_plot",
    "backprop",
    "lanes",
    "ensemble",
    "ensemble_members",
    "ensemble_refusals",
    "fit_ensemble",
]
WORKERS = int(os.environ.get("MUTANT_WORKERS", "1"))


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str
    """Test files by their middle name; after a space, words for pytest's -k."""


MUTANTS = [
    # f and the losses
    Mutant("objective.py", "mu * misfit", "misfit", "objective"),
    Mutant("objective.py", "(c_next - block.forward(p, c)[0])", "(c_next + block.forward(p, c)[0])", "objective"),
    Mutant("objective.py", "1 if couples else u.shape[0]", "u.shape[0]", "codes couple"),
    Mutant("objective.py", "(y - log_p.exp()).mT", "(log_p.exp() - y).mT", "objective"),
    Mutant("objective.py", ", value=-1)\n\n\nclass SquaredError", ")\n\n\nclass SquaredError", "objective"),
    Mutant("objective.py", "error * (2 / m)", "error / m", "objective"),
    Mutant("objective.py", "gradient * -samples", "-gradient", "objective"),
    # the calculus of modules
    Mutant("calculus/affine.py", "return v.sum(0)", "return v.mean(0)", "maps"),
    Mutant("calculus/affine.py", "self.push(p, saved, u), saved + u", "self.push(p, saved, u), saved", "maps"),
    Mutant("calculus/affine.py", "v.sum([0, *range(2, v.ndim)])", "v.sum([0, *range(2, v.ndim)]) * 2", "maps Conv"),
    Mutant("calculus/elementwise.py", "return threshold(v, saved[1])", "return v", "maps ReLU"),
    Mutant("calculus/elementwise.py", "u.maximum(-y), y_moved", "u, y_moved", "maps"),
    Mutant("calculus/elementwise.py", "(1 - y * y_moved)", "(1 - y * y)", "maps"),
    Mutant("calculus/elementwise.py", "return y * (1 - y)", "return 1 - y * y", "maps"),
    Mutant(
        "calculus/elementwise.py", "torch.where(small, self.slope(x, y) * u, y_moved - y)", "y_moved - y", "maps tiny"
    ),
    Mutant("calculus/linear.py", "m.ceil_mode, m.count_include_pad", "m.ceil_mode, True", "maps AvgPool"),
    Mutant("calculus/pooling.py", " - self._at(x, winners) + ", " + ", "maps"),
    Mutant("calculus/pooling.py", "(rival > best).view", "(rival < best).view", "maps MaxPool"),
    Mutant("calculus/pooling.py", "best.minimum(rival))", "rival)", "blocks kinks"),
    Mutant("calculus/pooling.py", "best.minimum(rival))", "best)", "blocks kinks"),
    Mutant("calculus/pooling.py", "return best, winner, best - second", "return best, winner, best", "blocks kinks"),
    Mutant("calculus/pooling.py", "(n - k) // s * s + 1", "(n - k) // s * s", "maps MaxPool"),
    Mutant("calculus/pooling.py", "self._at(x, new[1]) - self._at(x, winner)", "self._at(x, new[1])", "maps MaxPool"),
    Mutant("calculus/pooling.py", ".mul_(winner == number)", "", "maps MaxPool"),
    Mutant("calculus/pooling.py", "    x.zero_()\n", "", "blocks kinks"),
    Mutant("calculus/pooling.py", "lead.minimum(self._at(below, winner))", "lead", "blocks kinks"),
    Mutant("calculus/pooling.py", "return lead if below is None", "return None if below is None", "blocks kinks"),
    Mutant("calculus/elementwise.py", "below.minimum(saved[1])", "below", "blocks kinks"),
    Mutant("calculus/elementwise.py", "below.minimum(saved[1])", "saved[1]", "blocks kinks"),
    Mutant(
        "calculus/elementwise.py", "return saved[1] if below is None", "return None if below is None", "codes crosses"
    ),
    Mutant("calculus/pooling.py", "(kernel <= stride).all()", "(kernel <= stride).any()", "maps MaxPool"),
    Mutant("calculus/pooling.py", "(padding == 0).all()", "(padding >= 0).all()", "maps MaxPool"),
    Mutant(
        "calculus/linear.py",
        "v if saved is None else v * saved\n\n    push = pull",
        "v if saved is None else v * saved\n\n    push = lambda self, p, saved, u: u",
        "maps dropout",
    ),
    Mutant("calculus/linear.py", "return self.pull(p, saved, x), saved", "return self.forward(p, x)", "maps dropout"),
    Mutant("calculus/normalisation.py", " - xhat * (u * xhat).mean(dims, keepdim=True)", "", "maps"),
    Mutant("calculus/normalisation.py", "(shift * (2 * centred + shift))", "(shift * 2 * centred)", "maps"),
    Mutant("calculus/normalisation.py", "unbiased=True", "unbiased=False", "maps statistics"),
    Mutant(
        "calculus/normalisation.py", "m.running_var.copy_(m.running_var.lerp(var, weight))", "pass", "maps statistics"
    ),
    Mutant("calculus/other.py", "b.clone() for name, b", "b for name, b", "trainer unknown"),
    # precision
    Mutant(
        "calculus/products.py", "y if b is None else y + b\n", "y if b is None else y + b.bfloat16()\n", "precision map"
    ),
    Mutant("calculus/products.py", "p, q = a.bfloat16(), b.bfloat16()", "p, q = a, b", "precision"),
    Mutant(
        "calculus/products.py", "p, q = a.bfloat16(), b.bfloat16()", "p, q = a, b.bfloat16().to(a.dtype)", "precision"
    ),
    Mutant("calculus/products.py", "return (p @ q).to(a.dtype)", "return p @ q", "precision"),
    Mutant("calculus/products.py", "[t.bfloat16() for t in (v, x, W)] if _rounds else", "", "precision map"),
    Mutant(
        "calculus/products.py",
        "torch.convolution(x.bfloat16(), W.bfloat16()",
        "torch.convolution(x, W",
        "precision map",
    ),
    Mutant(
        "calculus/products.py", "if _rounds else nullcontext()", "if False else nullcontext()", "precision backprop"
    ),
    Mutant("calculus/products.py", "_rounds = before", "_rounds = False", "precision another"),
    Mutant("calculus/affine.py", "products.matmul(v.mT, x)", "v.mT @ x", "precision map"),
    Mutant("calculus/recurrent.py", "c[1:] += products.linear(", "c[1:] += F.linear(", "precision time"),
    Mutant("codes/recurrent.py", "Ku = matmul(u, self.K.mT)", "Ku = u @ self.K.mT", "precision meet"),
    Mutant(
        "recurrent.py",
        "Ku = matmul(_times_slope(g, h), self.K.mT)",
        "Ku = _times_slope(g, h) @ self.K.mT",
        "precision meet",
    ),
    Mutant("codes/recurrent.py", "torch.cat([matmul(u, V.mT)", "torch.cat([u @ V.mT", "precision meet"),
    Mutant("execution/precision.py", "cudnn.allow_tf32 = chosen.tf32", "True", "precision flags"),
    Mutant("execution/precision.py", "matmul.allow_tf32, cudnn.allow_tf32 = flags", "pass", "precision flags"),
    Mutant("execution/precision.py", "and before != _in_words()", "and False", "precision flags"),
    Mutant(
        "cli/running.py",
        "with precision.using(self.precision)",
        'with precision.using("float32")',
        "precision_cli record",
    ),
    Mutant("cli/train.py", '"freeze_first", "precision", "options"', '"freeze_first", "options"', "precision_cli go"),
    # blocks
    Mutant("chain.py", "isinstance(maps[i + 1], Normalisation)", "False", "blocks"),
    Mutant("chain.py", "seen.add(id(parameter))", "pass", "blocks twice"),
    Mutant("chain.py", "if i > self.first_with_parameters:", "if False:", "blocks"),
    Mutant("chain.py", "self.core.affine and isinstance(core[0], Affine) and all(", "all(", "codes couple"),
    Mutant("codes/linesearch.py", "u = g if at is None else threshold(g, at)", "u = g", "codes"),
    Mutant("codes/linesearch.py", "u if room is None else u.maximum(-room)", "u", "codes"),
    Mutant("codes/linesearch.py", "u.maximum(-room)", "u.minimum(room)", "codes"),
    Mutant("chain.py", "m.room(saved, room)", "m.room(saved, None)", "blocks kinks"),
    Mutant("chain.py", "u = m.spread(saved, u)", "u = m.spread(saved, 2 * u)", "codes"),
    Mutant("chain.py", "State(prelude, state.input + du, core)", "State(prelude, state.input, core)", "blocks"),
    Mutant("chain.py", "m.replay(p[self.slices[i]], saved[i], x)", "m.forward(p[self.slices[i]], x)", "blocks replay"),
    # codes
    Mutant("codes/gradient.py", "range(len(chain) - 1, 0, -1)", "range(len(chain) - 1, 1, -1)", "codes"),
    Mutant("codes/gradient.py", "    trace.values.pop()\n", "", "codes"),
    Mutant("codes/gradient.py", "Local(move.core,", "Local(state.core,", "weights"),
    Mutant("codes/gradient.py", "move.square, above.scale, doubts", "move.square, doubts", "weights deep"),
    Mutant("codes/gradient.py", "FitAbove(move.offset, move.square", "FitAbove(move.offset, 2 * move.square", "codes"),
    Mutant("codes/gradient.py", "% 8 == 0 else above", "% 8 == 8 else above", "codes float32"),
    Mutant(
        "codes/gradient.py", "t, scale = t * factor, scale * factor", "t, scale = t, scale * factor", "weights deep"
    ),
    Mutant("codes/gradient.py", "t * factor, scale * factor", "t * factor, scale", "weights deep"),
    Mutant("codes/gradient.py", "t * factor, scale * factor", "t * factor, factor", "weights magnified"),
    Mutant("codes/gradient.py", "scale / largest, spared / largest", "scale, spared / largest", "lanes"),
    Mutant("codes/gradient.py", "line.g + self.momentum * v", "line.g + v", "codes"),
    Mutant("codes/gradient.py", "self.l1 * above.price / mu", "self.l1", "codes"),
    Mutant("codes/gradient.py", "so_far.offset - line.d", "so_far.offset", "codes"),
    Mutant("codes/gradient.py", "before - after <= self", "before - after > self", "codes tolerance"),
    Mutant("codes/gradient.py", "self.above.shift(self.at, change)", "self.at", "weights inner"),
    Mutant("codes/gradient.py", "change), core=core", "change), core=self.core", "weights inner"),
    # line searches
    Mutant("codes/linesearch.py", "return 2 * self.price", "return self.price", "codes"),
    Mutant("codes/linesearch.py", "force / (2 * mu)", "force / mu", "codes"),
    Mutant("codes/linesearch.py", "force / (2 * mu)", "force / (4 * mu)", "codes"),
    Mutant("codes/linesearch.py", "costs = scaled(uu, self.price)", "costs = scaled(uu, 2 * self.price)", "codes"),
    Mutant("objective.py", "torch.add(bend, costs, alpha=2)", "(2 * costs)", "codes"),
    Mutant("objective.py", "torch.add(bend, costs, alpha=2)", "(bend + costs)", "codes"),
    Mutant(
        "objective.py",
        "newton(dot(at.force, dy), dot(dy, dy) * (2 / m), costs)",
        "newton(dot(at.force, dy), dot(dy, dy) / m, costs)",
        "codes",
    ),
    Mutant("codes/linesearch.py", "(_like(bend, gv) + self.pull_back * vv)", "(self.pull_back * vv)", "codes"),
    Mutant("codes/linesearch.py", "(dot(Jv, Jv, line.couples) + vv)", "dot(Jv, Jv, line.couples)", "codes"),
    Mutant("codes/linesearch.py", "> ceiling", "> ceiling + 1e30", "codes"),
    Mutant("codes/linesearch.py", "> _ceiling(before, slack)", "> 1e30 + before", "codes"),
    Mutant("codes/linesearch.py", "self.above.ceiling(self.value(self.now, self.d))", "torch.tensor(1e30)", "codes"),
    Mutant("codes/linesearch.py", "torch.addcmul(values, share.square(), costs) >", "values >", "codes"),
    Mutant("codes/linesearch.py", "return bool(rose.any())", "return bool(rose.all())", "codes"),
    Mutant("codes/linesearch.py", "self.kept.append(rose)", "pass", "recurrent doubt"),
    Mutant("trainer.py", "        if doubtful:\n", "        if False:\n", "recurrent doubt"),
    Mutant("codes/linesearch.py", "torch.where(too_far, alpha", "torch.where(too_far.any(), alpha", "codes"),
    Mutant("codes/linesearch.py", "alpha / 2 if left > 1 else 0", "0", "codes"),
    Mutant("codes/linesearch.py", "alpha / 2 if left > 1 else 0", "alpha / 2", "codes"),
    Mutant("codes/linesearch.py", "each(tt / (dot(u, u) + tt)", "each(0.1 * tt / (dot(u, u) + tt)", "codes"),
    Mutant("codes/linesearch.py", "each(tt / (dot(u, u) + tt)", "each(tt / (2 * dot(u, u) + tt)", "codes"),
    Mutant("codes/linesearch.py", "(dot(dy, dy) + uu)", "dot(dy, dy)", "codes"),
    Mutant(
        "codes.py", "spared = share if spared is None", "spared = torch.ones_like(share) if spared is None", "codes"
    ),
    Mutant("codes/linesearch.py", "r = torch.addcmul(t, column(share, dy), dy, value=-1)", "r = t - dy", "codes"),
    Mutant(
        "linesearch.py",
        "return values if self.spared is None else self.spared.square() * values",
        "return values if self.spared is None else self.spared * values",
        "trainer metrics",
    ),
    Mutant("codes/gradient.py", "else spared * share", "else share", "codes"),
    Mutant(
        "codes.py",
        "torch.addcmul(x, column(spared / scale if isinstance(scale, Tensor) else spared, u), u)",
        "x",
        "weights",
    ),
    Mutant("codes/gradient.py", "each(spared, u))\n", "u)\n", "weights kinks"),
    Mutant("codes/linesearch.py", "r = at.force - dy", "r = at.force + dy", "codes"),
    Mutant("codes/linesearch.py", "g - above.pull_back * self.d", "g", "codes"),
    Mutant("codes/linesearch.py", "block.couples or ", "", "codes couple"),
    Mutant("codes/linesearch.py", "value + self.above.price * dot(", "value + 0 * dot(", "codes"),
    Mutant("codes/linesearch.py", " * (self.above.pull_back / self.above.price / 2)", "", "codes"),
    # weights
    Mutant("weights/local.py", "-2 * mu / samples", "-mu / samples", "weights"),
    Mutant("weights/local.py", "-2 * mu / samples", "-2 / samples", "weights"),
    Mutant("weights/local.py", "return [-1 / samples if n is None", "return [-1.0 if n is None", "weights"),
    Mutant("weights/local.py", "** -0.5 / -samples", "** 0 / -samples", "weights"),
    Mutant("weights/local.py", "samples * (size or 1), tiny", "samples, tiny", "weights"),
    Mutant("weights/local.py", "(total / entries + tiny)", "(total / entries)", "weights nan"),
    Mutant("weights/local.py", "in reversed(self.blocks):", "in reversed(self.blocks[1:]):", "weights"),
    Mutant("weights/local.py", "for l in self.blocks:\n", "for l in self.blocks[:-1]:\n", "weights parts"),
    Mutant("weights/local.py", "samples, mu) / p.above.scale", "samples, mu)", "weights deep"),
    Mutant("weights/local.py", "change * problems[l].above.scale", "change", "weights magnified"),
    Mutant("weights/local.py", "true = 1 / problems[l].above.scale", "true = 1.0", "weights magnified"),
    Mutant("weights/local.py", "float(true) ** 2", "float(true)", "weights magnified"),
    Mutant("weights/local.py", "[grad.mul_(scale) for grad in grads]", "grads", "weights"),
    Mutant("weights/local.py", "core, scaled(force, scale))", "core, force)", "weights"),
    Mutant(
        "weights.py",
        "torch.stack([p.at.values.sum() for p in problems])",
        "torch.stack([0 * p.at.values.sum() + 1 for p in problems])",
        "weights inner",
    ),
    Mutant("weights/local.py", "[b - a for a, b", "[a - b for a, b", "weights inner"),
    Mutant("weights/local.py", 'group["lr"] * self.l1', "self.l1", "weights l1"),
    Mutant("weights/local.py", "if p.ndim > 1:", "if True:", "weights l1"),
    Mutant("weights/local.py", "self.samples + other.samples", "other.samples", "weights parts"),
    Mutant("weights/local.py", "self.value + other.value", "other.value", "weights parts"),
    Mutant("weights/local.py", "if p.requires_grad:", "if True:", "weights frozen"),
    Mutant("weights/local.py", "grad if grad.stride() == p.stride() else", "grad if True else", "weights memory"),
    Mutant("execution/alike.py", " or type(value) is Tensor", "", "ensemble_refusals tensors"),
    Mutant("weights/local.py", "step += 1\n", "step += 2\n", "weights adam"),
    Mutant("weights/local.py", "self.state[p] or self._begin(p, group)", "self._begin(p, group)", "weights adam"),
    Mutant("weights/local.py", 'beta2=group["betas"][1]', 'beta2=group["betas"][0]', "weights adam"),
    Mutant("weights/local.py", 'weight_decay=group["weight_decay"]', "weight_decay=0.0", "weights adam"),
    Mutant("weights/local.py", 'eps=group["eps"]', "eps=1e-8", "weights adam"),
    Mutant("weights/local.py", 'lr=group["lr"],', 'lr=self.defaults["lr"],', "weights"),
    Mutant("weights/local.py", "self._opt_called = True", "pass", "weights scheduler"),
    # memory
    Mutant("calculus/affine.py", "(0, 1), value=1.0", "(0, 1), value=0.0", "memory"),
    Mutant("weights/memory.py", "_join(p) @ A +", "_join(p) @ A -", "memory"),
    Mutant("weights/memory.py", "_join(p) @ A +", "0 * _join(p) @ A +", "memory"),
    Mutant(
        "calculus/affine.py", "tuple(padding), tuple(stride)", "tuple(padding), tuple(dilation)", "memory convolution"
    ),
    Mutant("weights/memory.py", "force / problem.above.scale", "force", "memory deep"),
    Mutant("weights/memory.py", "+ times *", "+ 1 *", "memory rate"),
    Mutant("weights/memory.py", "else self.rate * mu\n", "else self.rate\n", "memory rate"),
    Mutant("weights/memory.py", "1.0 if self.rate is None", "mu if self.rate is None", "memory plain"),
    Mutant("weights/memory.py", "[q[0].numel() for q in p], 1)", "[q[0].numel() for q in p][::-1], 1)", "memory"),
    Mutant("weights/memory.py", ".fade(self.forget)", ".fade(1.0)", "memory forgetting"),
    Mutant("weights/memory.py", "(B[:, j] - W @ A[:, j])", "(B[:, j] + W @ A[:, j])", "memory sweep"),
    Mutant("weights/memory.py", "for _ in range(self.sweeps or 0):", "for _ in range(1):", "memory sweeps"),
    Mutant("weights/memory.py", "damping * A.diagonal().mean()", "damping", "memory damping"),
    Mutant(
        "memory.py", "return W + torch.cholesky_solve((B - W @ A)", "return torch.cholesky_solve((B)", "memory damping"
    ),
    Mutant(
        "weights/memory.py",
        "return W + torch.linalg.lstsq(A, (B - W @ A)",
        "return torch.linalg.lstsq(A, (B)",
        "memory",
    ),
    Mutant("weights/memory.py", "memory.A / memory.samples", "memory.A", "memory"),
    Mutant("weights/memory.py", "self.gathered[l] + new if l in", "new if l in", "weights parts"),
    Mutant("weights/memory.py", "self.rest.update(problems, totals, mu)", "pass", "memory rest"),
    # codes in time
    Mutant("calculus/recurrent.py", "_product(v[1:], saved.h[:-1])", "_product(v, saved.h)", "recurrent"),
    Mutant(
        "calculus/recurrent.py",
        "c[1:] += products.linear(saved.h[:-1], p[1])",
        "c += products.linear(saved.h, p[1])",
        "recurrent_layers map",
    ),
    Mutant("calculus/recurrent.py", "F.pad(h[:-1], (0, 0, 0, 0, 1, 0))", "h", "recurrent"),
    Mutant("calculus/recurrent.py", "c.mul_(saved.real)", "c", "recurrent_layers map"),
    Mutant("calculus/recurrent.py", ".cumprod(1)", "", "recurrent_layers zero"),
    Mutant(
        "calculus/recurrent.py",
        "h if real is None else h * real\n        return h.tr",
        "h\n        return h.tr",
        "recurrent",
    ),
    Mutant("calculus/recurrent.py", ".zero_().requires_grad_(False)", ".zero_()", "recurrent_layers bias"),
    Mutant("calculus/recurrent.py", "saved._replace(x=saved.x + change)", "saved", "recurrent_layers map"),
    Mutant("codes/recurrent.py", "range(self.rounds)", "range(1)", "recurrent"),
    Mutant("codes/recurrent.py", "torch.cat([d[1:], torch.zeros_like(d[:1])])", "d", "recurrent"),
    Mutant("codes/recurrent.py", "d[t + 1 :][:1] if t + 1 < len(d) else None", "None", "recurrent"),
    Mutant("codes/recurrent.py", "e if steps.real is None else e * steps.real", "e", "recurrent padding"),
    Mutant("codes/recurrent.py", "share / 2 if left > 1 else 0", "share", "recurrent"),
    Mutant("codes/recurrent.py", "moved * share.square()", "moved", "recurrent halved"),
    Mutant("codes/recurrent.py", "(1 + 64 * torch", "(1 + torch", "recurrent rounding"),
    Mutant("codes/recurrent.py", "> time.start * (1 +", "> 2 * time.start * (1 +", "recurrent"),
    Mutant("codes/recurrent.py", "asked += matmul(n[span], self.W)", "pass", "recurrent"),
    Mutant("codes/recurrent.py", "gg + (n[span] * Wu).sum(2, keepdim=True)", "gg", "recurrent"),
    Mutant("codes/recurrent.py", "bend = gg + self.squares(Ku)", "bend = self.squares(Ku)", "recurrent"),
    Mutant("codes/recurrent.py", "bend = gg + self.squares(Ku)", "bend = gg + self.squares(Wu)", "recurrent"),
    Mutant("codes/recurrent.py", "bend -= (1 - self.follows[span]) * self.squares(Wu)", "pass", "recurrent"),
    Mutant("codes/recurrent.py", "bend[-1] = gg[-1] + Vu[-1].square().sum(1, keepdim=True)", "pass", "recurrent"),
    Mutant("codes/recurrent.py", "alpha.mul_(e) if alone else alpha", "alpha", "recurrent"),
    Mutant("codes/recurrent.py", "gg.mul_(alpha.square())", "gg.mul_(alpha)", "recurrent"),
    Mutant("codes/recurrent.py", "left[1:] -= Ku[:-1, :, k:]", "pass", "recurrent"),
    Mutant("codes/recurrent.py", "                left[0] -= asked\n", "                pass\n", "recurrent pieces"),
    Mutant("codes/recurrent.py", "left *= self.real[span]", "pass", "recurrent"),
    Mutant(
        "codes/recurrent.py", "self.e[span], Ku[..., :k], misfit", "self.e[span], 2 * Ku[..., :k], misfit", "recurrent"
    ),
    Mutant("codes/recurrent.py", "steps._replace(h=settled.h)", "steps", "recurrent"),
    Mutant("codes/recurrent.py", "seen._replace(x=settled.h) if", "seen if", "recurrent stack"),
    Mutant("codes/recurrent.py", "self._spare.setdefault(l, {})", "self._spare.setdefault(0, {})", "recurrent stack"),
    Mutant("codes/recurrent.py", "torch.addcmul(h.new_ones(()), h, v)", "1", "recurrent"),
    Mutant("weights/local.py", "l < len(self.chain) - 1", "True", "weights epsilon"),
    # discrete activations
    Mutant("layers.py", "x < 0, -1.0", "x <= 0, -1.0", "discrete"),
    Mutant("layers.py", "right=True", "right=False", "discrete"),
    Mutant("layers.py", "sub_(1 + h / 2)", "sub_(1)", "discrete"),
    Mutant("layers.py", "torch.where(x.isnan(), x, y)", "y", "discrete"),
    Mutant("layers.py", "raise no_derivative(ctx.module)", "return _[0], None", "discrete"),
    Mutant("layers.py", "x.clamp(-1, 1)", "x.clamp(-2, 2)", "discrete"),
    Mutant("calculus/discrete.py", "return y - saved[1], moved", "return y, moved", "discrete"),
    Mutant("calculus/discrete.py", ".abs() <= 1)", ".abs() <= 2)", "discrete"),
    Mutant("calculus/discrete.py", "        raise no_derivative(self.module)", "        return v", "discrete"),
    Mutant("codes/search.py", "self.c.abs() <= 1", "self.c.abs() <= 2", "discrete"),
    Mutant("codes/search.py", "amplify * self.h / 2 *", "amplify * self.h *", "discrete"),
    Mutant("codes/search.py", "v = m.pull((), saved, v)", "v = m.pull((), saved, v) * 1.5", "discrete between"),
    Mutant("codes/search.py", "m.pull((), saved, D) if isinstance(m, Dropout) else D", "D", "discrete between"),
    Mutant("codes/search.py", "[w.square() for w in self.p]", "[w.abs() for w in self.p]", "discrete"),
    Mutant("codes/search.py", "torch.where(v > self.h / 2 - 1, v - self.h / 2 - self.c, 0)", "0 * v", "discrete"),
    Mutant("codes/search.py", "self.c - v - self.h / 2, 0)", "self.c - v, 0)", "discrete"),
    Mutant("codes/search.py", " - self.distance(self.s).square()", "", "discrete"),
    Mutant("codes/search.py", "(2 * e * self.q - self.h * self.weight)", "(2 * e * self.q)", "discrete"),
    Mutant(
        "codes/search.py", "(2 * e * self.q - self.h * self.weight)", "(e * self.q - self.h * self.weight)", "discrete"
    ),
    Mutant("codes/search.py", " - price\n", "\n", "discrete"),
    Mutant("codes/search.py", "self.near & (v.abs() < 1 + self.h / 2)", "v.abs() < 1 + self.h / 2", "discrete"),
    Mutant("codes/search.py", "self.near & (v.abs() < 1 + self.h / 2)", "self.near", "discrete"),
    Mutant("codes/search.py", "self.q = self.pull(self.left)", "pass", "discrete"),
    Mutant("codes/search.py", "rises = up >= down", "rises = up <= down", "discrete"),
    Mutant("codes/search.py", "dot(dy, dy) - 2 * dot(left, dy)", "-2 * dot(left, dy)", "discrete"),
    Mutant("codes/search.py", "u * _column(rise < 0, u)", "u", "discrete"),
    Mutant("codes/search.py", "left - dy * _column", "left + dy * _column", "discrete"),
    Mutant("codes/search.py", "todo[(rise >= 0) & (most[rows] > 0)]", "todo[:0]", "discrete together"),
    Mutant("codes/search.py", "change.sign(), self.s.sign() * hold", "change.sign(), 0.0", "discrete asked"),
    Mutant("codes/search.py", "wish = m.pull(p[of], saved, wish)", "pass", "discrete_codes normalisation"),
    Mutant("codes/search.py", "v, e = m.pull((), saved, v), m.pull((), saved, e)", "pass", "discrete_codes winners"),
    Mutant("codes/search.py", "2 * self.s * self.asks > self.h", "self.s * self.asks > self.h", "discrete asked"),
    Mutant("codes/search.py", "(self.s.abs() > 1 - self.h / 2) & ", "", "discrete asked"),
    Mutant("codes/discrete.py", "self.e * (gap > 0) / 2", "self.e * (gap > 0)", "discrete_codes hinge"),
    Mutant("codes/discrete.py", "self.e * (gap > 0) / 2", "self.e / 2", "discrete_codes hinge"),
    Mutant("codes/discrete.py", "self._at(at.output + dy)", "at", "discrete_codes hinge"),
    Mutant("codes/discrete.py", "(v - code) * e.abs()", "v - code", "discrete_codes squared"),
    Mutant("codes/discrete.py", "range(self.sweeps)", "range(0)", "discrete_codes"),
    Mutant("codes/discrete.py", "above.served(), at), asks", "above.served(), asks.start), asks", "discrete_codes"),
    Mutant("codes/discrete.py", "super().descend(stand_in(block)", "super().descend((block)", "discrete_codes"),
    Mutant(
        "codes/discrete.py",
        "return self.gradient.give_way(",
        "return GradientCodes(lr=0.1).give_way(",
        "discrete_codes",
    ),
    Mutant(
        "codes/choose.py", "if type(codes) in (GradientCodes, RecurrentCodes):", "if False:", "discrete_codes refused"
    ),
    Mutant("codes/choose.py", "            position(block)", "            pass", "discrete_codes refused"),
    Mutant("codes/linesearch.py", "if self.block.estimated:", "if False:", "discrete_codes"),
    Mutant("audit.py", '_counted(m.estimate, finding, "estimates")', "m.estimate", "discrete_codes audit"),
    Mutant("audit.py", 'for name in ("pull", "push"):', "for name in ():", "discrete_codes audit"),
    Mutant("models/__init__.py", "first.requires_grad_(False)", "pass", "discrete_codes frozen"),
    # mu
    Mutant("penalty.py", "self.value + self.increment", "self.value", "penalty"),
    Mutant("penalty.py", "self.value * self.growth", "self.value", "penalty"),
    Mutant("penalty.py", "min(value, self.maximum)", "value", "penalty"),
    # the step
    Mutant("trainer.py", "self.penalty.step()\n        return", "return", "penalty"),
    Mutant("trainer.py", "self.penalty.step()\n\n", "\n", "weights parts"),
    Mutant("trainer.py", "mu * sum(true[:-1])", "2 * mu * sum(true[:-1])", "trainer metrics"),
    Mutant("trainer.py", "total / scale / scale", "total", "weights magnified"),
    Mutant("trainer.py", "** 0.5 / scale", "** 0.5", "weights magnified"),
    Mutant("chain.py", "if m.couples]", "if False]", "trainer running"),
    Mutant("trainer.py", "m.commit(saved)", "pass", "trainer running"),
    Mutant("trainer.py", "if not math.isfinite(", "if False and not math.isfinite(", "trainer bad_input"),
    Mutant("trainer.py", " + 0 * first_code", "", "trainer bad_input"),
    Mutant("trainer.py", "x.dtype != first.dtype or", "", "trainer bad_input"),
    # the convergence theorem
    Mutant("theory/bounds.py", "2 * xi - 3 * gamma", "2 * xi - 2 * gamma", "theory papers"),
    Mutant("theory/bounds.py", "(t + 2) + 1.5", "(t + 1) + 1.5", "theory papers"),
    Mutant("theory/bounds.py", "9 * sigma2", "4.5 * sigma2", "theory papers"),
    Mutant("theory/bounds.py", "+ 2 * eta * gamma * (blocks - 1)) * error", ") * error", "theory recursion"),
    Mutant("theory/bounds.py", "1 - 1.5 / (np.arange(n) + 2)", "1 - 1.5 / (np.arange(n) + 3)", "theory expands"),
    Mutant("theory/constants.py", "return min(self.strong)", "return max(self.strong)", "theory recursion"),
    Mutant("theory/constants.py", "2 * mu * lam / (mu + lam)", "mu * lam / (mu + lam)", "theory xi"),
    Mutant("theory/constants.py", "1 - 2 * distances[far]", "1 - distances[far]", "theory report"),
    Mutant("theory/quadratic.py", "pull.max(1), ", "pull.min(1), ", "theory hessian"),
    Mutant("theory/quadratic.py", "+ pull @ self.radius", "", "theory attained"),
    Mutant("theory/quadratic.py", "T[at] -= eta * H[at]", "T[at] -= eta * H[at] / 2", "theory samples"),
    Mutant("theory/quadratic.py", "self.noise[d] ** 2 / n", "self.noise[d] ** 2", "theory expectation"),
    Mutant("theory/scheme.py", "block -= rule", "block += rule", "theory expectation"),
    Mutant("theory/scheme.py", "np.square(problem.radius / 2)", "np.square(problem.radius)", "theory projection"),
    Mutant("theory/scheme.py", "noise -= size", "noise -= 0.9 * size", "theory expectation"),
    Mutant("theory/scheme.py", "start[:, at] + away * shrink[:, None]", "away * shrink[:, None]", "theory projection"),
    Mutant("theory/scheme.py", "/ squares.shape[1] ** 0.5", "/ squares.shape[1]", "theory expectation"),
    Mutant("theory/scheme.py", "self._tabulate(t)", "pass", "theory expectation own"),
    Mutant("theory/checks.py", "max(abs(1 - eta * c)", "min(abs(1 - eta * c)", "theory refuted"),
    Mutant("theory/checks.py", "a = 0.75 * lam / xi", "a = 1.5 * lam / xi", "theory slow"),
    Mutant("theory/schedule.py", "step_size(self.last_epoch,", "step_size(self.last_epoch + 1,", "theory schedule"),
    Mutant("theory/network.py", "root * (2 * self.penalty", "(2 * self.penalty", "theory_network"),
    Mutant("theory/network.py", "-2 * wrong * a + pull2", "-2 * wrong * a", "theory_network"),
    Mutant("theory/network.py", "(1 + self.safety) * max", "max", "theory_network"),
    Mutant("theory/study.py", "mean + ERRORS * error <= limit", "mean >= limit", "theory_cli"),
    Mutant("theory/study.py", "if t >= first and", "if", "theory rates"),
    Mutant("cli/theory.py", "raise typer.Exit(1)", "raise typer.Exit(0)", "theory_cli"),
    # what is measured, against what
    Mutant("cli/pool.py", "entry._replace(label=YARDSTICK)", 'Entry(YARDSTICK, "eager", 1)', "bench"),
    Mutant("cli/pool.py", "[a / b for a, b", "[b / a for a, b", "bench"),
    Mutant("cli/pool.py", "self.seed + i)", "self.seed)", "bench"),
    Mutant("cli/pool.py", "value / entry.members", "value", "bench"),
    Mutant("cli/specs.py", "size = factor * int(found[2])", "size = factor + int(found[2])", "bench"),
    Mutant("cli/specs.py", "{**defaults(method), **options}", "{**options, **defaults(method)}", "bench"),
    Mutant("cli/bench_picture.py", "b - m for m, b", "b + m for m, b", "bench_plot"),
    Mutant("methods/backprop.py", "fused=fused or None, capturable", "fused=None, capturable", "backprop"),
    Mutant("execution/compiled.py", "            self._update()\n", "", "backprop"),
    # a step that asks nothing, equal layers together
    Mutant("weights/local.py", "return each(spared * scale, force)", "return scale * force", "weights kinks"),
    Mutant("trainer.py", "s.square() * v for v, s", "s * v for v, s", "trainer metrics"),
    Mutant("trainer.py", "(parts.square() * values).sum(1)", "(parts * values).sum(1)", "lanes"),
    Mutant(
        "execution/stacked.py", "products.batched(u.flatten(1, -2), run.W.mT)", "products.batched(u, run.W)", "lanes"
    ),
    Mutant("execution/stacked.py", ".double().cumprod(0).flip(0)", ".double().flip(0)", "lanes"),
    Mutant(
        "execution/stacked.py",
        "torch.ones_like(share[0]) if spared is None else spared",
        "torch.ones_like(share[0])",
        "lanes",
    ),
    Mutant(
        "execution/stacked.py",
        "self.settled[run.last] = Settled(core, r, spared[1:])",
        "self.settled[run.last] = Settled(core, r, spared[:-1])",
        "lanes",
    ),
    Mutant("execution/stacked.py", "(spared[:-1] / before.unsqueeze(1))", "spared[:-1]", "lanes"),
    Mutant("execution/stacked.py", "_column(spared * factors.unsqueeze(1), force)", "factors.view(-1, 1, 1)", "lanes"),
    Mutant("execution/stacked.py", "last + 1])).to(force.dtype)", "last + 1]))", "lanes single"),
    Mutant("codes/gradient.py", "/ entries + tiny) ** 0.5", "/ entries) ** 0.5", "lanes dead"),
    Mutant("trainer.py", "total / scale / scale for", "total / scale**2 for", "lanes dead"),
    Mutant("execution/stacked.py", "scales[run.first : run.last + 1]", "scales[run.first - 1 : run.last]", "lanes"),
    Mutant("execution/stacked.py", "            torch.sum(force, 1, out=run.db)\n", "            pass\n", "lanes"),
    Mutant(
        "execution/storage.py",
        "[None, *(_kind(block) for block in chain.blocks[1:-1])]",
        "[_kind(block) for block in chain.blocks[:-1]]",
        "lanes",
    ),
    Mutant("execution/storage.py", "self.grads[len(self.grads) - size :]", "self.grads[:size]", "lanes"),
    Mutant(
        "execution/lanes.py",
        "old.copy_(torch.where(ok, value, old))\n\n\n@fusible_alone\ndef _sgd_",
        "old.copy_(value)\n\n\n@fusible_alone\ndef _sgd_",
        "lanes bad",
    ),
    Mutant("execution/lanes.py", "steps[0].to(p.dtype) + 1", "steps[0].to(p.dtype) + 2", "lanes"),
    Mutant("execution/lanes.py", " & ~doubtful.any()", "", "lanes halved"),
    Mutant("execution/lanes.py", "    ok = fine & (sums", "    ok = (sums", "lanes bad"),
    Mutant("execution/lanes.py", "(sums.sum() + 0 * first_code)", "sums.new_zeros(())", "lanes bad"),
    Mutant("execution/lanes.py", "new.clamp_max(maximum), mu)", "new, mu)", "lanes ordinary"),
    Mutant(
        "execution/lanes.py",
        '                state.rate.fill_(options["lr"])\n',
        "                pass\n",
        "lanes schedule",
    ),
    Mutant("execution/lanes.py", "self.original.penalty.value = float(self.mu)", "pass", "lanes ordinary"),
    Mutant(
        "execution/lanes.py",
        "                if name in old:\n                    new.copy_(old[name])\n",
        "",
        "lanes goes_on",
    ),
    # many members at once
    Mutant("codes/linesearch.py", "        if self.thorough:\n            return True\n", "", "ensemble doubt"),
    Mutant("calculus/recurrences.py", "F.linear(x, U, b + b2)", "F.linear(x, U)", "ensemble elman step"),
    Mutant("calculus/recurrences.py", "c if h is None else torch.addmm(c, h, W.mT)", "c", "ensemble elman step"),
    Mutant("calculus/recurrences.py", "_blocks(W), b.flatten()", "_blocks(W.mT), b.flatten()", "ensemble elman"),
    Mutant("calculus/recurrences.py", "t.movedim(0, 2).flatten(2)", "t.movedim(0, 3).flatten(2)", "ensemble elman"),
    Mutant("calculus/recurrences.py", ".add_(_bad(x))", "", "ensemble_members elman"),
    Mutant("calculus/recurrences.py", "_bad(x) + _bad(v)", "_bad(x)", "ensemble_members gradient"),
    Mutant("calculus/recurrences.py", "_diagonal(gW, n)", "_diagonal(gW.mT, n)", "ensemble elman"),
    Mutant(
        "objective.py", "torch.func.grad_and_value(self.function)(output, y)", "output, output.sum()", "ensemble any"
    ),
    Mutant(
        "recurrent.py", "above = FitAbove(asked, doubts=time.doubts)", "above = FitAbove(asked)", "ensemble sequential"
    ),
    Mutant("execution/rules.py", "1 - beta1**step", "1", "ensemble am-adam"),
    Mutant("execution/rules.py", "(1 - beta2**step) ** 0.5", "1 - beta2**step", "ensemble am-adam"),
    Mutant("execution/rules.py", "lr * weight_decay, eps", "weight_decay, eps", "ensemble am-adam"),
    Mutant(
        "execution/rules.py", "torch.lerp(v, g * g, keeps[1])", "torch.lerp(v, g * g, keeps[0])", "ensemble am-adam"
    ),
    Mutant(
        "execution/rules.py", "momentum * velocity + g + weight_decay * p", "momentum * velocity + g", "ensemble sgd"
    ),
    Mutant("execution/rules.py", "p.abs() - _like(threshold, p)", "p.abs() + _like(threshold, p)", "ensemble am-adam"),
    Mutant(
        "execution/rules.py",
        "torch.where(ok.view(*ok.shape, *[1] * (b.ndim - ok.ndim)), a, b, out=b)",
        "b.copy_(a)",
        "ensemble_members",
    ),
    Mutant("execution/sheets.py", "l1 if p.ndim > 1 else 0.0", "l1", "ensemble am-adam"),
    Mutant("execution/sheets.py", 'o["lr"] * o["l1"]', 'o["l1"]', "ensemble am-adam"),
    Mutant("execution/sheets.py", 'self.rule == "adam" and ', "", "ensemble am-adam"),
    Mutant("execution/sheets.py", '"adamw" if decoupled else "adam"', '"adamw"', "ensemble adam"),
    Mutant("execution/sheets.py", 'sheet.varied["lr"][i] = next(', "_ = next(", "ensemble_members saved"),
    Mutant("execution/sheets.py", "part.copy_(state[name])", "pass", "ensemble_members learned"),
    Mutant("execution/sheets.py", 'group["lr"] = lr\n', "pass\n", "ensemble_members schedule"),
    Mutant("execution/sheets.py", 'fixed.pop("lr", None)', 'fixed.pop("", None)', "ensemble"),
    Mutant("execution/members.py", "/ scale**2 for", "for", "ensemble deep"),
    Mutant("execution/members.py", "mu * sum(true[:-1])", "sum(true[:-1])", "ensemble deep"),
    Mutant("execution/members.py", "mu * totals[:-1].sum()", "totals[:-1].sum()", "ensemble am-sgd"),
    Mutant("execution/members.py", "loss + objective + code", "loss + objective", "ensemble_members code"),
    Mutant("execution/members.py", "own.training = layer.training", "pass", "ensemble mode"),
    Mutant("execution/members.py", "m.commit(saved)", "pass", "ensemble layers"),
    Mutant("execution/members.py", "step + 1\n            grads", "step\n            grads", "ensemble am-adam"),
    Mutant("execution/members.py", '["step"] + 1', '["step"] + 2', "ensemble adam"),
    Mutant("execution/members.py", "                theta = self.lend(rows)\n", "", "ensemble inner"),
    Mutant("execution/members.py", ".fade(self.memory.forget)", "", "ensemble am-mem"),
    Mutant("execution/members.py", 'state["mu"] + options["increment"]', 'state["mu"]', "ensemble am-adam"),
    Mutant(
        "execution/members.py",
        'options["increment"], options["maximum"])',
        'options["increment"], 1e9 + 0 * state["mu"])',
        "ensemble penalty",
    ),
    Mutant("execution/members.py", "[doubts.found(), singular.found()]", "[singular.found()]", "ensemble doubt"),
    Mutant("execution/members.py", "[doubts.found(), singular.found()]", "[doubts.found()]", "ensemble_members solved"),
    Mutant("execution/members.py", '(row["weights"].sum() for row in rows)', "()", "ensemble_members weights"),
    Mutant("execution/ensemble.py", "& ~doubtful & ~found", "& ~found", "ensemble_members range"),
    Mutant("execution/ensemble.py", "None if all_well else self.alive & ~doubtful", "None", "ensemble_members"),
    Mutant(
        "execution/ensemble.py", "None if all_well else self.alive & ~doubtful", "~doubtful", "ensemble_members stops"
    ),
    Mutant("execution/ensemble.py", "self.alive &= ~failed", "pass", "ensemble_members"),
    Mutant(
        "execution/ensemble.py", 'torch.where(doubtful, found["objective"], objective)', "objective", "ensemble several"
    ),
    Mutant(
        "execution/ensemble.py",
        "doubtful & ~unsolved & ~failed, new",
        "doubtful & ~failed, new",
        "ensemble_members solved",
    ),
    Mutant("execution/ensemble.py", "keep(self.alive, [mu]", "keep(self.alive | True, [mu]", "ensemble_members state"),
    Mutant(
        "execution/ensemble.py",
        'self._state["mu"] * self._options["growth"]',
        'self._state["mu"]',
        "ensemble_members epochs",
    ),
    Mutant(
        "execution/ensemble.py",
        "                loss.check(output",
        "                (output",
        "ensemble_refusals batch",
    ),
    Mutant(
        "execution/ensemble.py",
        "x, y, each = x.expand(len(self), *x.shape), y.expand(len(self), *y.shape), True",
        "pass",
        "ensemble dropout",
    ),
    Mutant(
        "fit/ensemble.py", "epoch_order(len(x), seed, epoch)", "epoch_order(len(x), 0, epoch)", "fit_ensemble history"
    ),
    Mutant("fit/ensemble.py", "self.losses[i] / self.per_epoch", "self.losses[i]", "fit_ensemble history"),
    Mutant("fit/ensemble.py", "        self.ensemble.end_epoch()\n", "", "fit_ensemble growth"),
    Mutant("fit/ensemble.py", "step - self.before - 1", "step - self.before", "fit_ensemble diverges"),
    Mutant("fit/schedule.py", 'group["lr"].copy_(rate) if', 'group["lr"] if', "ensemble_members schedule"),
]


def copy_to(folder: Path) -> None:
    """The package without its data, and the tests that mutants are held against."""
    folder.mkdir()
    shutil.copytree(ROOT / "altmin", folder / "altmin", ignore=shutil.ignore_patterns("files", "__pycache__"))
    (folder / "tests").mkdir()
    for file in ROOT.glob("tests/*.py"):
        if file.stem.removeprefix("test_") in TESTS or not file.stem.startswith("test_"):
            shutil.copy(file, folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)


def pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "--tb=no", "-o", "testpaths=tests", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def failing_already(folder: Path) -> list[str]:
    """Tests that fail without any defect: they can say nothing about mutants."""
    where = "import altmin; print(altmin.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    ).stdout
    if not Path(found.strip()).resolve().is_relative_to(folder.resolve()):
        sys.exit(f"the tests would run against {found.strip()}, not against the copy in {folder}")
    said = pytest(folder, "tests").stdout
    if broken := re.findall(r"^ERROR (.+)$", said, re.MULTILINE):
        sys.exit(f"without any defect, {broken[0]} cannot even start: every mutant would seem to be caught")
    return re.findall(r"^FAILED (.+?)(?: - .*)?$", said, re.MULTILINE)


def verdict(mutant: Mutant, sound: Path, left_out: list[str]) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = shutil.copytree(sound, Path(name) / "mutant")
        file = folder / "altmin" / mutant.file
        text = file.read_text()
        if mutant.old not in text:
            return "NOT FOUND in the source"
        file.write_text(text.replace(mutant.old, mutant.new, 1))
        tests, _, words = mutant.tests.partition(" ")
        options = ["-x", f"tests/test_{tests}.py", *(f"--deselect={test}" for test in left_out)]
        code = pytest(folder, *options, *(["-k", words.replace(" ", " or ")] if words else [])).returncode
        return {0: "SURVIVED", 1: "caught"}.get(code, f"BROKEN: pytest ended with {code}")


def main(wanted: str = "") -> int:
    mutants = [m for m in MUTANTS if wanted in m.file or wanted in m.old or wanted in m.new]
    verdicts = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(WORKERS) as pool:
        sound = Path(name) / "sound"  # copied once, so that the source may be edited meanwhile
        copy_to(sound)
        left_out = failing_already(sound)
        for test in left_out:
            print(f"fails without any defect, so left out: {test}")
        for mutant, result in zip(mutants, pool.map(lambda m: verdict(m, sound, left_out), mutants), strict=True):
            verdicts.append(result)
            change = f"{mutant.old.strip()!r} -> {mutant.new.strip()!r}"
            print(f"{result:8}  {mutant.file:14} {change}  ({mutant.tests})", flush=True)
    caught = verdicts.count("caught")
    print(f"{caught} of {len(mutants)} mutants caught")
    return int(caught < len(mutants))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
