"""The tables of the pages on the paper, on the theorem and on how soon nets learn."""

from statistics import mean

from reproduction.claims import judged, summary
from reproduction.figure import load, verdicts
from reproduction.figures.learning import LEARNING
from reproduction.learning import Learner, tables
from reproduction.measurements import results
from reproduction.results import Results
from reproduction.search import history
from reproduction.tables import markdown, table
from reproduction.theory import study

CONNECTED = {
    "fig1": "Figure 1: MNIST, first epoch",
    "fig2": "Figure 2: MNIST, 50 epochs",
    "fig3": "Figure 3: CIFAR-10, first epoch",
    "fig4": "Figure 4: CIFAR-10, 50 epochs",
    "fig5": "Figure 5: HIGGS",
}
NAMES = ("ours", "criterion", "numbers", "because")
"""What a statement has besides its text and its verdict as printed."""
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


@table("paper.claims")
def claims() -> str:
    rows = verdicts()
    lines = []
    for row in rows:
        found = [each["printed"] for each in row["statements"] if each["printed"]]
        parts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in dict.fromkeys(found))
        lines.append([row["claim"], row["text"], row["paper"], f"**{row['printed']}**", row["ours"], parts])
    head = ["claim", "what the paper says", "its value", "as printed", "with our step", "statements, as printed"]
    return f"{summary(rows)}\n\n{markdown(head, lines)}"


@table("paper.figures")
def figures() -> str:
    rows = []
    for name, figure in load().items():
        if not figure.axes:
            continue
        claims = ", ".join(claim.id for claim in figure.claims)
        rows.append([name, f"[{figure.title}](../results/{name}.png)", f"{figure.minutes:g}", claims])
    return markdown(["figure", "shows", "minutes on an H200", "claims"], rows)


def statements(titles: dict[str, str]) -> str:
    """For each figure its picture, and its claims with all their statements."""
    parts, known = list[str](), load()
    for name, title in titles.items():
        figure, found = known[name], results(name)
        parts.append(f"## {title}\n\n![{figure.title}](../results/{name}.png)\n")
        for claim in figure.claims:
            row = judged(claim, found, f"python -m reproduction figure {name}")
            rows = [
                [each["text"], f"**{each['printed'] or '-'}**", *(each[name] for name in NAMES)]
                for each in row["statements"]
            ]
            parts.append(f"**{claim.id}.** {claim.text} ({claim.paper}).\n")
            parts.append(markdown(["statement", "as printed", "with our step", *NAMES[1:]], rows) + "\n")
    return "\n".join(parts)


table("paper.connected")(lambda: statements(CONNECTED))
table("paper.others")(lambda: statements(OTHERS))


@table("paper.settings")
def settings() -> str:
    """What every search has chosen, but those of the figure `learning`, whose tables say it."""
    rows = []
    for name, figure in load().items():
        tried = Results.read(history(name))
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
    inside, outside = ([row for row in rows if bool(row["outside"]) == each] for each in (False, True))
    parts = (study.table("inside the theorem", inside), study.table("outside it", outside))
    return "\n\n".join(markdown(*part) for part in parts)


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
