"""Defects of the residual net for images, of the transformer and of the text drawn from it."""

from . import Mutant

MUTANTS = [
    Mutant("models/resnet.py", "self.shortcut(x) + branch", "branch", "models_resnet formula"),
    Mutant("models/resnet.py", "1 if outputs == width else 2", "1", "models_resnet formula"),
    Mutant("models/resnet.py", 'mode="fan_out"', 'mode="fan_in"', "models_resnet variance"),
    Mutant("models/gpt.py", "is_causal=True", "is_causal=False", "models_gpt later"),
    Mutant("models/gpt.py", " + self.position.weight[:time]", "", "models_gpt formula"),
    Mutant("models/gpt.py", "return x + self.project(y", "return self.project(y", "models_gpt formula"),
    Mutant("models/gpt.py", "return x + self.project(F.gelu", "return self.project(F.gelu", "models_gpt formula"),
    Mutant("models/gpt.py", "y.transpose(1, 2).flatten(2)", "y.flatten(2).view_as(x)", "models_gpt formula"),
    Mutant("models/gpt.py", "0.02 / (2 * layers) ** 0.5", "0.02 / layers**0.5", "models_gpt start"),
    Mutant(
        "models/sampling.py",
        "(output / temperature).softmax",
        "(output * temperature).softmax",
        "models_sampling temperature",
    ),
    Mutant("models/sampling.py", "tokens[-first.context :]", "tokens[: first.context]", "models_sampling beyond"),
    Mutant("models/sampling.py", "[0, -1].double()", "[0, 0].double()", "models_sampling beyond"),
    Mutant("models/sampling.py", "manual_seed(seed)", "manual_seed(0)", "models_sampling seed"),
    Mutant("models/names.py", "if width % h == 0", "if True", "models_names head"),
]
