"""Defects of codes in time."""

from . import Mutant

MUTANTS = [
    Mutant(
        "codes/recurrent.py", "pulled = matmul(asked, time.V)", "pulled = asked @ time.V", "execution_precision meet"
    ),
    Mutant("codes/recurrent.py", "matmul(q, time.V.mT)", "q @ time.V.mT", "execution_precision meet"),
    Mutant("codes/recurrent.py", "matmul(change, self.V.mT)", "(change @ self.V.mT)", "execution_precision meet"),
    Mutant(
        "codes/recurrent.py", "matmul(change[:-1], self.W.mT)", "change[:-1] @ self.W.mT", "execution_precision meet"
    ),
    Mutant(
        "calculus/recurrent.py",
        "c[1:] += products.linear(saved.h[:-1], p[1])",
        "c += products.linear(saved.h, p[1])",
        "recurrent_layers map",
    ),
    Mutant("calculus/recurrent.py", "c.mul_(saved.real)", "c", "recurrent_layers map"),
    Mutant("layers.py", ".cumprod(1)", "", "recurrent_layers zero"),
    Mutant(
        "calculus/recurrent.py",
        "h if real is None else h * real\n        return h.tr",
        "h\n        return h.tr",
        "recurrent_layers",
    ),
    Mutant("layers.py", ".zero_().requires_grad_(False)", ".zero_()", "recurrent_layers bias"),
    Mutant("calculus/recurrent.py", "saved._replace(x=shifted(saved.x, steps, e))", "saved", "recurrent_layers map"),
    Mutant(
        "codes/recurrent.py", "for _ in range(1, self.rounds):", "for _ in range(self.rounds):", "codes_recurrent loop"
    ),
    Mutant(
        "codes/recurrent.py",
        "asked[:-1] += matmul(g[1:], time.W)",
        "asked += matmul(g, time.W)",
        "codes_recurrent loop",
    ),
    Mutant("codes/recurrent.py", "asked = pulled.clone()", "asked = pulled", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "pulled[t] + matmul(found[-1], time.W)", "pulled[t]", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "matmul(found[-1], time.W)", "matmul(found[-1], time.W.mT)", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "found[::-1]", "found", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "along(g, -here.a, here.left)", "g", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "along(g, -here.a, here.left)", "along(g, -1.0, here.left)", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "g + self.momentum * w", "g + w", "codes_recurrent loop"),
    Mutant(
        "codes/recurrent.py", "delta if self.real is None else delta * self.real", "delta", "recurrent_layers padding"
    ),
    Mutant("codes/recurrent.py", "_times_slope(w, here.h)", "_times_slope(w, time.h)", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "time.misfit(w, q, -1.0)", "time.misfit(w, q, 1.0)", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "bend + square", "bend", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "bend + square", "square", "codes_recurrent loop"),
    Mutant(
        "codes/recurrent.py", "gain = gain - here.a * inner(", "gain = gain + here.a * inner(", "codes_recurrent loop"
    ),
    Mutant(
        "codes/recurrent.py", "inner(u[:1], u[:1]) + inner(rest, rest)", "inner(rest, rest)", "codes_recurrent loop"
    ),
    Mutant(
        "codes/recurrent.py",
        "self.share * root(time.above.square)",
        "self.share * time.above.square",
        "codes_recurrent loop",
    ),
    Mutant("codes/recurrent.py", "at_least(gain, 0.0)", "gain", "codes_recurrent taken"),
    Mutant("codes/recurrent.py", "time.rows(time.above.left)", "asked", "codes_recurrent below"),
    Mutant(
        "codes/recurrent.py",
        "judged(stay.value, new.value",
        "judged(stay.value, 0 * new.value",
        "codes_recurrent taken",
    ),
    Mutant("codes/recurrent.py", "linear._replace(a=0 * a)", "linear._replace(a=a)", "codes_recurrent taken"),
    Mutant(
        "codes/recurrent.py", "self.a * self.a / 2 * self.square", "self.a / 2 * self.square", "codes_recurrent taken"
    ),
    Mutant("codes/recurrent.py", "divisor(self.above.scale * a)", "divisor(a)", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "along(self.a * self.u, a, w)", "along(self.u, a, w)", "codes_recurrent loop"),
    Mutant(
        "codes/recurrent.py",
        "root(over(inner(v, v), inner(self.u, self.u)))",
        "1 + 0 * inner(v, v)",
        "codes_recurrent loop",
    ),
    Mutant("codes/recurrent.py", "torch.addcmul(one, h, v)", "1", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "1 + torch.finfo(h.dtype).eps", "1.0", "codes_recurrent saturated"),
    Mutant("codes/recurrent.py", "rest if real is None else rest * real", "rest", "codes_recurrent loop"),
    Mutant(
        "codes/recurrent.py",
        "None if self.real is None else self.real[1:]",
        "None if self.real is None else self.real[:-1]",
        "codes_recurrent",
    ),
    Mutant("codes/recurrent.py", "steps._replace(h=point.h)", "steps", "codes_recurrent loop"),
    Mutant("codes/recurrent.py", "seen._replace(x=point.h) if", "seen if", "codes_recurrent stack"),
    Mutant(
        "codes/recurrent.py", "select(length > TINY, v / at_least(length, TINY), self.u)", "v", "codes_recurrent taken"
    ),
    Mutant(
        "codes/recurrent.py",
        'if order == "weights-first" else (self.left',
        "if False else (self.left",
        "codes_recurrent loop",
    ),
    Mutant(
        "codes/recurrent.py", "super().start._replace(value=self.lefts / 2)", "super().start", "codes_recurrent reports"
    ),
    Mutant(
        "codes/recurrent.py",
        "along(self.above.position, a / e",
        "along(self.above.delta, a / e",
        "codes_recurrent below",
    ),
    Mutant("codes/recurrent.py", "._replace(moved=self.scale * self.scale * self.moved)", "", "codes_recurrent loop"),
    Mutant("recurrences.py", "F.linear(x, U, b + b2)", "F.linear(x, U)", "execution_ensemble elman step"),
    Mutant("recurrences.py", "c if h is None else torch.addmm(c, h, W.mT)", "c", "execution_ensemble elman step"),
    Mutant("recurrences.py", "_diagonal(gW, n)", "_diagonal(gW.mT, n)", "execution_ensemble elman"),
]
