"""The tables of the pages on the paper, on the theorem and on how soon nets learn."""

from statistics import mean

from reproduction.claims import judged
from reproduction.commands.verify import summary, verdicts
from reproduction.figure import load
from reproduction.figures.learning import FIGURE as LEARNING
from reproduction.folders import FIGURES, RESULTS, history
from reproduction.learning import Learner
from reproduction.learning.table import tables
from reproduction.measurement import Row
from reproduction.measurements import results
from reproduction.settings import History
from reproduction.tables import markdown, table

CONNECTED = {
    "fig1": "Figure 1: MNIST, first epoch",
    "fig2": "Figure 2: MNIST, 50 epochs",
    "fig3": "Figure 3: CIFAR-10, first epoch",
    "fig4": "Figure 4: CIFAR-10, 50 epochs",
    "fig5": "Figure 5: HIGGS",
}
OTHERS = {
    "fig6": "Figure 6: recurrent net, 15 units",
    "rnn50": "Appendix B: recurrent net, 50 units",
    "fig7": "Figure 7: LeNet-5, MNIST",
    "fashion": "Appendix A: LeNet-5, Fashion-MNIST",
    "fig8": "Figure 8: binary net",
    "runtimes": "Appendix C: run times, and memory",
    "theory": "Section 3: the theorem",
    "parallel": "Section 2: all layers at once",
    "continual": "Section 2: the memory's hypothesis",
}
TIMES = (10, 1_000, 10_000, 100_000)


@table("paper.claims")
def claims() -> str:
    rows = verdicts(FIGURES, RESULTS)
    lines = []
    for row in rows:
        found = [each["verdict"] for each in row["statements"]]
        parts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in dict.fromkeys(found))
        lines.append([row["claim"], row["text"], row["paper"], f"**{row['verdict']}**", parts])
    head = ["claim", "what the paper says", "its value", "verdict", "of its statements"]
    return f"{summary(rows)}\n\n{markdown(head, lines)}"


@table("paper.figures")
def figures() -> str:
    rows = []
    for name, figure in load(FIGURES).items():
        claims = ", ".join(claim.id for claim in figure.claims)
        rows.append([name, f"[{figure.title}](../results/{name}.png)", f"{figure.minutes:g}", claims])
    return markdown(["figure", "shows", "minutes on an H200", "claims"], rows)


def statements(titles: dict[str, str]) -> str:
    """For each figure its picture, and its claims with all their statements."""
    parts, known = list[str](), load(FIGURES)
    for name, title in titles.items():
        figure, found = known[name], results(name)
        parts.append(f"## {title}\n\n![{figure.title}](../results/{name}.png)\n")
        for claim in figure.claims:
            row = judged(claim, found, f"python -m reproduction figure {name}")
            rows = [
                [each["text"], f"**{each['verdict']}**", each["criterion"], each["ours"], each["because"]]
                for each in row["statements"]
            ]
            parts.append(f"**{claim.id}.** {claim.text} ({claim.paper}).\n")
            parts.append(markdown(["statement", "verdict", "criterion", "found", "because"], rows) + "\n")
    return "\n".join(parts)


table("paper.connected")(lambda: statements(CONNECTED))
table("paper.others")(lambda: statements(OTHERS))


@table("paper.settings")
def settings() -> str:
    """What every search has chosen, but those of the figure `learning`, whose tables say it."""
    rows = []
    for name, figure in load(FIGURES).items():
        tried = History.read(history(RESULTS, name))
        for search in figure.searches:
            best = search.best(tried)
            if best is None or isinstance(search.run, Learner):
                continue
            options = ", ".join(f"{option} {value:.3g}" for option, value in best["options"].items())
            paper = ", ".join(f"{option} {value:g}" for option, value in search.paper.items())
            count, kind = len(search.tried(tried)), "Bayesian" if search.bayesian else "grid"
            line = [name, f"{search.run.data}, {search.run.model}", search.run.name, f"{count}, {kind}", options]
            rows.append([*line, f"{mean(best['accuracy']):.4f}", paper])
    head = ["figure", "data, net", "method", "tried", "chosen", "validation accuracy", "the paper's"]
    return markdown(head, rows)


@table("paper.theorem")
def theorem() -> str:
    """Error and bound, of the figure `theory`."""
    rows = results("theory").rows[0]["rows"]
    head = ["K", "coupling", "condition", *(f"t = {t:,}" for t in TIMES), "slope", "bound / error"]
    parts = []
    for title, outside in (("inside the theorem", False), ("outside it", True)):
        body = [
            [row["case"], str(row["K"]), f"{row['coupling']:.3g}", f"{row['condition']:.3g}", *_bounds(row)]
            for row in rows
            if bool(row["outside"]) == outside
        ]
        parts.append(markdown([title, *head], body))
    return "\n\n".join(parts)


def _bounds(row: Row) -> list[str]:
    found = []
    for t in TIMES:
        if t not in row["times"]:
            found.append("")
            continue
        i = row["times"].index(t)
        value, error = row["mean"][i], row["standard_error"][i]
        digits = f"{value:.2e}" + (f" ± {error:.0e}" if error > 1e-12 * value else "")  # without noise all are one
        found.append(digits + (f" / {row['bound'][i]:.1e}" if row["bound"] else ""))
    return [*found, f"{row['slope']:.2f}", "" if row["tightness"] is None else f"{row['tightness']:.3g}"]


@table("learning")
def learning() -> str:
    found = tables(LEARNING, results("learning"))
    return "\n\n".join(f"**{title}**\n\n{markdown(head, rows)}" for title, head, rows in found)


def learned(task: str, name: str, batch: int, measured: str = "test_accuracy") -> float | None:
    """The mean of what the runs of a task of the figure `learning` had come to after some batches; None if they were
    not made."""
    runs = [run for run in LEARNING.runs if (run.task, run.name) == (task, name)]
    points = [point for run in runs for row in results("learning").of(run) for point in row["points"]]
    found = [point[measured] for point in points if point["batch"] == batch]
    return mean(found) if found else None
