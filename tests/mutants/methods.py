"""Defects of models and methods."""

from . import Mutant

MUTANTS = [
    Mutant("models/freeze.py", "[0].requires_grad_(False)", "", "models_freeze"),
    Mutant("models/freeze.py", "parameters(recurse=False)", "parameters()", "models_freeze"),
    Mutant(
        "models/fully_connected.py", 'nn.Linear(m, n), "relu"', 'nn.Linear(m, n), "linear"', "models_fully_connected"
    ),
    Mutant(
        "models/fully_connected.py", 'nn.Linear(m, n), "linear"', 'nn.Linear(m, n), "relu"', "models_fully_connected"
    ),
    Mutant("models/fully_connected.py", "nn.init.zeros_(layer.bias)", "pass", "models_fully_connected"),
    Mutant("models/recurrent.py", "(0, 1), value=1.0", "(0, 1)", "models_recurrent"),
    Mutant("models/names.py", "[int(found[3])] * int(found[2])", "[int(found[2])] * int(found[3])", "models_names"),
    Mutant("methods/backprop.py", "fused=fused or None, capturable", "fused=None, capturable", "methods_backprop"),
    Mutant("methods/backprop.py", "        self.optimizer.zero_grad()\n", "", "methods_backprop"),
    Mutant(
        "methods/offline.py", "        return self.am.loss\n", "        return nn.L1Loss()\n", "methods_offline loss"
    ),
    Mutant("methods/offline.py", "        self.am.end_epoch()\n", "", "methods_offline"),
    Mutant(
        "methods/offline.py", "CoActivationMemory(0.0, damping", "CoActivationMemory(0.9, damping", "methods_offline"
    ),
    Mutant("methods/alternating.py", "LocalSGD(lr, momentum, ", "LocalSGD(lr, 0.0, ", "methods_alternating"),
]
