"""The tables of docs/reproduction.md, the pages that go through the paper figure by figure, docs/learning.md and
docs/continual.md from the files of reproduction/results: the command is `python experiments/reproduction.py table`.

The files are written by `figure FIGURE` and `search FIGURE`; this trains nothing. `pictures` draws all
figures again from their results. `settings` writes the best of every search to reproduction/figures/settings.jsonl,
from which an installed package takes them. `prune FIGURE...` drops results and searches that belong to no run of
a figure.
"""

import json
import sys
from collections.abc import Sequence
from statistics import mean

from common import HERE, fill, table

from reproduction.claims import judged
from reproduction.commands.verify import summary, verdicts
from reproduction.draw import draw
from reproduction.figure import Figure, choose, load
from reproduction.folders import CHOSEN, FIGURES, RESULTS, history
from reproduction.learning import Learner
from reproduction.learning.table import tables
from reproduction.results import Results, words
from reproduction.settings import History, chosen, judged_alike

DOCUMENT = HERE / "docs/reproduction.md"


PAGES = {
    "paper-fully-connected": ("fig1", "fig2", "fig3", "fig4", "fig5"),
    "paper-others": ("fig6", "rnn50", "fig7", "fashion", "fig8", "runtimes", "theory", "parallel", "continual"),
}
"""Which figures each page goes through, in the order of the paper."""


def claims() -> str:
    rows = verdicts(FIGURES, RESULTS)
    lines = []
    for row in rows:
        found = [each["verdict"] for each in row["statements"]]
        parts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in dict.fromkeys(found))
        lines.append([row["claim"], row["text"], row["paper"], f"**{row['verdict']}**", parts])
    head = ["claim", "what the paper says", "its value", "verdict", "of its statements"]
    return f"{summary(rows)}\n\n{table(head, lines)}"


def statements(names: Sequence[str]) -> str:
    """For each figure its picture, and its claims with all their statements."""
    parts, known = [], load(FIGURES)
    for name in names:
        figure, results = known[name], Results.read(RESULTS / f"{name}.jsonl")
        parts.append(f"## {TITLES[name]}\n\n![{figure.title}](../reproduction/results/{name}.png)\n")
        for claim in figure.claims:
            row = judged(claim, results, f"python -m reproduction figure {name}")
            rows = [
                [each["text"], f"**{each['verdict']}**", each["criterion"], each["ours"], each["because"]]
                for each in row["statements"]
            ]
            parts.append(f"**{claim.id}.** {claim.text} ({claim.paper}).\n")
            parts.append(table(["statement", "verdict", "criterion", "found", "because"], rows))
    return "\n".join(parts)


TITLES = {
    "fig1": "Figure 1: MNIST, first epoch",
    "fig2": "Figure 2: MNIST, 50 epochs",
    "fig3": "Figure 3: CIFAR-10, first epoch",
    "fig4": "Figure 4: CIFAR-10, 50 epochs",
    "fig5": "Figure 5: HIGGS",
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


def figures() -> str:
    rows = []
    for name, figure in load(FIGURES).items():
        made = sum(len(Results.read(RESULTS / f"{name}.jsonl").of(run)) for run in figure.runs)
        judged = ", ".join(claim.id for claim in figure.claims)
        shown = f"[{figure.title}](../reproduction/results/{name}.png)" if made else figure.title
        rows.append([name, shown, f"{figure.minutes:g}", judged])
    return table(["figure", "shows", "minutes on an H200", "claims"], rows)


def settings() -> str:
    rows = []
    for name, figure in load(FIGURES).items():
        if not figure.searches:
            continue
        tried = History.read(history(RESULTS, name))
        for search in figure.searches:
            best = search.best(tried)
            if best is None or isinstance(search.run, Learner):  # docs/learning.md has those
                continue
            options = ", ".join(f"{option} {value:.3g}" for option, value in best["options"].items())
            paper = ", ".join(f"{option} {value:g}" for option, value in search.paper.items())
            count, kind = len(search.tried(tried)), "Bayesian" if search.bayesian else "grid"
            net = f"{search.run.data}, {search.run.model}"
            rows.append(
                [name, net, search.run.name, f"{count}, {kind}", options, f"{mean(best['accuracy']):.4f}", paper]
            )
    head = ["figure", "data, net", "method", "tried", "chosen", "validation accuracy", "the paper's"]
    return table(head, rows)


def continual() -> str:
    figure, results = load(FIGURES)["continual"], Results.read(RESULTS / "continual.jsonl")
    cells: dict[str, list[str]] = {}
    for run in figure.runs:
        rows = results.all(run)
        accuracy, lost = ([row.get(name, 0.0) for row in rows] for name in ("average_accuracy", "forgetting"))
        kept = f"{rows[0]['bytes']['memory'] / 1e6:.2f}"
        cells.setdefault(run.name, [run.name, kept]).extend([words(accuracy), words(lost)])
    head = [
        "learner",
        "MB kept",
        *(f"{panel}, {what}" for panel in figure.panels for what in ("accuracy", "forgetting")),
    ]
    return table(head, list(cells.values()))


def learning() -> str:
    found = tables(load(FIGURES)["learning"], Results.read(RESULTS / "learning.jsonl"))
    parts = [f"**{title}**\n\n{table(head, rows)}" for title, head, rows in found]
    picture = "![Accuracy or loss against samples and seconds](../reproduction/results/learning.png)\n"
    return "\n".join([picture, *parts]) if parts else "Not measured yet.\n"


def prune(name: str, figure: Figure) -> None:
    """Rewrites a figure's files without the rows of runs and searches that it no longer declares."""
    configs = [run.config() for run in figure.runs]
    made = Results.read(RESULTS / f"{name}.jsonl")
    files = [(made, [row for row in made.rows if row["config"] in configs])]
    if known := [each.identity() for each in figure.searches]:
        tried = History.read(history(RESULTS, name))
        files.append((tried, [row for row in tried.rows if any(judged_alike(row, own) for own in known)]))
    for results, rows in files:
        if results.path is not None and len(rows) < len(results.rows):
            print(f"{results.path.name}: {len(results.rows) - len(rows)} of {len(results.rows)} rows dropped")
            results.path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    if sys.argv[1:] == ["table"]:
        for name, text in ("figures", figures()), ("claims", claims()):
            fill(DOCUMENT, text, name)
        for page, names in PAGES.items():
            fill(HERE / f"docs/{page}.md", statements(names), "statements")
        fill(HERE / "docs/reproduction-settings.md", settings(), "settings")
        fill(HERE / "docs/continual.md", continual())
        fill(HERE / "docs/learning.md", learning())
    elif sys.argv[1:] == ["pictures"]:
        for name, figure in load(FIGURES).items():
            results = Results.read(RESULTS / f"{name}.jsonl")
            if results.rows:
                (RESULTS / f"{name}.png").write_bytes(draw(figure, results, "png"))
    elif sys.argv[1:] == ["settings"]:
        searched = [name for name, figure in load(FIGURES).items() if figure.searches]
        rows = [row for name in searched for row in chosen(name, History.read(history(RESULTS, name)).rows)]
        CHOSEN.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif sys.argv[1:2] == ["prune"]:
        for name in sys.argv[2:]:
            prune(name, choose(load(FIGURES), name))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
