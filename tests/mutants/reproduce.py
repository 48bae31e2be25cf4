"""Defects of what makes the paper's figures."""

from . import Mutant

MUTANTS = [
    Mutant("reproduce/search.py", 'part="validation", ', "", "reproduce_search loaded"),
    Mutant("reproduce/search.py", "if name not in self.space}", "}", "reproduce_search first"),
    Mutant(
        "reproduce/search.py",
        '        if "diverged" in row:\n            return 0.0\n',
        "",
        "reproduce_search diverged",
    ),
    Mutant(
        "reproduce/search.py", 'accuracy(row["epochs"][-1])', 'accuracy(row["epochs"][0])', "reproduce_search accuracy"
    ),
    Mutant("reproduce/search.py", "dict.fromkeys(each) for", "list(each) for", "reproduce_search grid"),
    Mutant("reproduce/search.py", "seed=len(tried)", "seed=None", "reproduce_search interrupted"),
    Mutant("reproduce/search.py", "log=True", "log=False", "reproduce_search better"),
    Mutant("reproduce/search.py", 'direction="maximize"', 'direction="minimize"', "reproduce_search better"),
    Mutant("reproduce/search.py", "for _ in range(search.seeds)]", "for _ in range(1)]", "reproduce_search row"),
    Mutant("reproduce/settings.py", 'mean(row["accuracy"])', 'max(row["accuracy"])', "reproduce_settings best"),
    Mutant("reproduce/settings.py", "if judged_alike(row, rows[-1])", "", "reproduce_settings several"),
    Mutant(
        "reproduce/settings.py", '"config", "at_batch", "seeds"))', '"config", "seeds"))', "reproduce_settings several"
    ),
]
