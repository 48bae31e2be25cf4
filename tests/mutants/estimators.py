"""Defects of sample weights and of the estimators for scikit-learn."""

from . import Mutant

MUTANTS = [
    Mutant(
        "calculus/sample_weight.py",
        "return t if w is None else multiplied(t, w)",
        "return t",
        "calculus_sample_weight repeated",
    ),
    Mutant(
        "calculus/sample_weight.py",
        "    if w is None:\n        return of_all(len(t))\n",
        "    if w is None or True:\n        return of_all(len(t))\n",
        "calculus_sample_weight repeated",
    ),
    Mutant("losses.py", "* y.rows * F.log_softmax", "* F.log_softmax", "reweighted copy"),
    Mutant("reweighted.py", "len(self.w) / self.w.sum()", "1.0", "calculus_sample_weight repeated"),
    Mutant(
        "reweighted.py",
        "def samples(self, output: Tensor) -> Any:\n        return self.w.sum().item()",
        "def samples(self, output: Tensor) -> Any:\n        return len(output)",
        "calculus_sample_weight repeated",
    ),
    Mutant(
        "losses.py",
        ".flatten(1).mean(1)).sum() / w.sum()",
        ".flatten(1).mean(1)).mean()",
        "reweighted copy",
    ),
    Mutant(
        "trainer.py", "delta=multiplied(residual.delta, w)", "delta=residual.delta", "calculus_sample_weight repeated"
    ),
    Mutant(
        "trainer.py",
        "multiplied(residual.after(change), w)",
        "residual.after(change)",
        "calculus_sample_weight repeated",
    ),
    Mutant("weights/memory.py", "torch.mm(weighed(a).mT, a", "torch.mm(a.mT, a", "calculus_sample_weight repeated"),
    Mutant(
        "codes/linesearch.py",
        "weighed(more).sum()",
        "more.sum()",
        "calculus_sample_weight growth",
    ),
    Mutant("sklearn/rows.py", "(part - scaler.mean_) /", "part /", "sklearn_rows"),
    Mutant("sklearn/rows.py", "sample_weight=None if w is None else w[part]", "sample_weight=None", "sklearn_rows"),
    Mutant("sklearn/training.py", "watched < lowest - tol", "watched < lowest", "sklearn_training"),
    Mutant(
        "sklearn/training.py", "            if watched < lowest:\n", "            if waited == 0:\n", "sklearn_training"
    ),
    Mutant("sklearn/training.py", "self.method.load_state_dict(best[1])", "pass", "sklearn_training"),
    Mutant("sklearn/training.py", "torch.arange(len(rows.t))", "torch.randperm(len(rows.t))", "sklearn_training"),
    Mutant("sklearn/training.py", "self.generator = torch.get_rng_state()", "pass", "sklearn_training"),
    Mutant("sklearn/training.py", "total += count * float", "total += float", "sklearn_training"),
    Mutant("sklearn/base.py", "return copy.deepcopy(self.network)", "return self.network", "sklearn_estimators own"),
    Mutant(
        "sklearn/base.py",
        "DECAY if auto else float(self.weight_decay)",
        "float(not auto and self.weight_decay)",
        "sklearn_estimators decay",
    ),
    Mutant("sklearn/base.py", "if not known and not auto and self.weight_decay:", "if False:", "sklearn_base setting"),
    Mutant("sklearn/base.py", "return X[w > 0], y[w > 0], w[w > 0]", "return X, y, w", "sklearn_base zero"),
    Mutant(
        "sklearn/estimators.py",
        "softmax(self._outputs(X), axis=1)",
        "softmax(self._outputs(X))",
        "sklearn_estimators softmax",
    ),
    Mutant(
        "sklearn/estimators.py",
        "output * scaler.scale_ + scaler.mean_",
        "output * scaler.scale_",
        "sklearn_estimators unit",
    ),
    Mutant(
        "sklearn/estimators.py",
        "        self._demand_known(known, y)\n        super()",
        "        super()",
        "sklearn_base classes",
    ),
]
