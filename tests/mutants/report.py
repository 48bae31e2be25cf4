"""Defects of the page of claims and figures."""

from . import Mutant

MUTANTS = [
    Mutant("report/plots.py", '"y": _each(curve, mean)', '"y": _each(curve, max)', "report_plots line"),
    Mutant("report/plots.py", "[low for _, low, _ in reversed(edges)]", "[low for _, low, _ in edges]", "report_plots"),
    Mutant("report/plots.py", "curve.name not in seen", "True", "report_plots method"),
    Mutant("report/plots.py", "if axis == figure.axes[0] else []", "", "report_plots paper"),
    Mutant("report/plots.py", "value if math.isfinite(value) else None", "value", "report_plots finite"),
    Mutant("report/plots.py", "html.escape(words, quote=False)", "words", "report_plots literally"),
    Mutant("report/tables.py", "min(total, limit or total)", "total", "report_tables partial"),
    Mutant("report/tables.py", "results.of(run)[: run.seeds]}", "results.of(run)}", "report_tables only"),
    Mutant("report/tables.py", "if name not in shared))", "))", "report_tables share"),
    Mutant("report/page.py", "autoescape=True", "autoescape=False", "report_page text"),
    Mutant("report/page.py", 'default=("~", 0)', 'default=("A", 0)', "report_page first"),
    Mutant("report/page.js", "shown[button.dataset.figure] =", "shown.nothing =", "report_browser button"),
    Mutant("report/page.js", 'uirevision: "kept"', "uirevision: Math.random()", "report_browser legend"),
    Mutant("report/page.js", "printing ? PAPER :", "", "report_browser printed"),
    Mutant("reproduce/figure.py", 'if axis == "seconds" else seeds', "if False else seeds", "reproduce_figure time"),
    Mutant("reproduce/figure.py", "len(points) == max(map(len, seeds))", "True", "reproduce_figure time"),
]
