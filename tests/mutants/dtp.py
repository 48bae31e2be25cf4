"""Defects of difference target propagation."""

from . import Mutant

FILE = "methods/dtp.py"
GRADIENTS = "methods_dtp own loss"

MUTANTS = [
    Mutant(FILE, "found.append(s_below + (g(found[-1]) - g(s)))", "found.append(g(found[-1]))", "methods_dtp target"),
    Mutant(FILE, "(g(found[-1]) - g(s))", "(g(s) - g(found[-1]))", "methods_dtp target"),
    Mutant(FILE, "s_below + (g(found[-1])", "s_below + (g(top)", "methods_dtp target"),
    Mutant(FILE, "(s - t).mul_(2 / of_all(len(s)))", "(s - t).mul_(1 / of_all(len(s)))", GRADIENTS),
    Mutant(FILE, "(again - s_below).mul_(2 / of_all(len(s)))", "(again - s_below).mul_(2)", GRADIENTS),
    Mutant(FILE, "affine(layer.linear, self.below.message(s_below))", "affine(layer.linear, s_below)", GRADIENTS),
    Mutant(FILE, ".mul_(self.noise)", "", GRADIENTS),
    Mutant(FILE, "at.states[-1] - products.matmul", "at.states[-1] + products.matmul", GRADIENTS),
    Mutant(FILE, "self.eta * samples", "self.eta * len(delta)", GRADIENTS),
    Mutant(FILE, "inputs.append(m)", "inputs.append(s)", "methods_dtp output"),
    Mutant(FILE, "return self.module.values(s)  #", "return s  #", "methods_dtp message"),
    Mutant(
        FILE, "self.module.values(s.clamp(-largest, largest).atanh())", "self.module.values(s)", "methods_dtp message"
    ),
    Mutant(FILE, '"lr": lr_inverse}]', '"lr": lr}]', "methods_dtp rate"),
    Mutant(
        FILE, "if not bool(torch.stack([value, *sizes])", "if not bool(torch.stack([value])", "methods_dtp overflow"
    ),
    Mutant(FILE, "                if self.layers[l].trained:\n", "                if True:\n", "methods_dtp frozen"),
    Mutant(
        FILE, "(g(s) - below).norm() / below.norm()", "(g(s) - below).norm() / s.norm()", "methods_dtp reconstruction"
    ),
    Mutant(FILE, '        self.inverses.load_state_dict(state["inverses"])\n', "", "methods_rivals dtp"),
]
