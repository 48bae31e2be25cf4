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
    Mutant("reproduce/run.py", "-(-row[", "(row[", "reproduce_run counted"),
    Mutant("reproduce/run.py", 'OF_THE_PICTURE = ("seeds", ', "OF_THE_PICTURE = (", "reproduce_run config"),
    Mutant("reproduce/run.py", "not self.whole or ", "", "reproduce_run whole"),
    Mutant(
        "reproduce/run.py", "Job(self.method, dict(options), seed)", "Job(self.method, {}, seed)", "reproduce_run order"
    ),
    Mutant("reproduce/figure.py", "[: run.seeds]", "", "reproduce_figure curve"),
    Mutant("reproduce/figure.py", "run.panel in made or not made", "run.panel in made", "reproduce_figure panels"),
    Mutant("reproduce/figure.py", "sys.path.remove(str(path.parent))", "pass", "reproduce_figure underscore"),
    Mutant("reproduce/claims.py", 'if row["verdict"] != "holds")', ")", "reproduce_claims two"),
    Mutant("reproduce/judging.py", "not reasons", "bool(reasons)", "reproduce_judging holds"),
    Mutant(
        "reproduce/judging.py", "[why for why, true in against.items() if true]", "list(against)", "reproduce_judging"
    ),
    Mutant(
        "reproduce/timing.py",
        'row["epochs"][1:]), initial=0.0)\n        return',
        'row["epochs"]), initial=0.0)\n        return',
        "reproduce_timing first",
    ),
    Mutant("reproduce/timing.py", "n / (len(times) - 1)", "n / len(times)", "reproduce_timing line"),
    Mutant("reproduce/theorem.py", "found[self.shown]", 'found["mean"]', "reproduce_theorem bound"),
    Mutant(
        "reproduce/parallel.py",
        "for block in reversed(blocks)][::-1]",
        "for block in reversed(blocks)]",
        "reproduce_parallel bits",
    ),
    Mutant(
        "reproduce/entries.py",
        "options=self.options, **given",
        "options=run.options, **given",
        "reproduce_entries found",
    ),
    Mutant("reproduce/entries.py", "{**common, **self.run}", "{**self.run, **common}", "reproduce_entries"),
    Mutant("reproduce/make.py", "if why]", "if not why]", "reproduce_make here"),
    Mutant(
        "reproduce/make.py",
        "if not set(seeds) & set(results.missing(run)):",
        "if not seeds:",
        "reproduce_make once",
    ),
]
