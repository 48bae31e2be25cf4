"""Defects of learning from streams, and of keeping memories."""

from . import Mutant

MUTANTS = [
    Mutant("stream/statistics.py", "self.forget * self.scatter + d", "self.scatter + d", "stream_statistics weighted"),
    Mutant("stream/statistics.py", "d * (x - mean)", "d * d", "stream_statistics numpys weighted"),
    Mutant("stream/statistics.py", "self.mean + d / weight", "self.mean + d / (weight + 1)", "stream_statistics"),
    Mutant("stream/statistics.py", "self.total if seen else 0.0", "0.0", "stream_statistics counts"),
    Mutant("stream/features.py", 'if self.absent == "zero" else values', "if False else values", "stream_features"),
    Mutant("stream/features.py", "*self.names, *new] if new else", "*self.names] if new else", "stream_features new"),
    Mutant("stream/growth.py", "_insert(R, old, new, 1)", "_insert(R, old + 1, new, 1)", "stream_growth memory"),
    Mutant("stream/growth.py", "torch.zeros_like(values).to(p)", "torch.ones_like(values).to(p)", "stream_growth"),
    Mutant("stream/growth.py", "bias.new_zeros(outputs)", "bias.new_ones(outputs)", "stream_growth outputs"),
    Mutant("stream/estimator.py", "self._statistics.update(row)", "pass", "stream_estimator"),
    Mutant("stream/settings.py", "copy.deepcopy(dict(options or {}))", "dict(options or {})", "stream_settings used"),
    Mutant("stream/regressor.py", "            self._target.update(value)\n", "            pass\n", "stream_regressor"),
    Mutant("stream/classifier.py", "        if new:\n", "        if False:\n", "stream_classifier ratios"),
    Mutant("continual/keeping.py", "CoActivationMemory(1.0,", "CoActivationMemory(0.9,", "continual_keeping ever_seen"),
    Mutant("continual/keeping.py", "LocalAdam(lr), prior", "LocalAdam(lr), None", "continual_keeping earlier"),
]
