"""The tables of docs/reproduction.md, docs/learning.md and docs/continual.md from the files of benchmarks/reproduce:
the command is `python experiments/reproduction.py table`.

The files are written by `altmin reproduce FIGURE` and `altmin search FIGURE`; this trains nothing. `pictures` draws all
figures again from their results. `settings` writes the best of every search to altmin/paper/figures/settings.jsonl,
from which an installed package takes them.
"""

import json
import sys
from statistics import mean

from common import HERE, fill, table

from altmin.cli.verify import verdicts
from altmin.paper.learning import Learner
from altmin.paper.learning.table import tables
from altmin.paper.reproduce.draw import draw
from altmin.paper.reproduce.figure import load
from altmin.paper.reproduce.folders import CHOSEN, FIGURES, RESULTS, history
from altmin.paper.reproduce.results import Results, words
from altmin.paper.reproduce.settings import History, chosen

DOCUMENT = HERE / "docs/reproduction.md"


def claims() -> str:
    rows = [
        [row["claim"], row["text"], row["paper"], row["ours"] or "", row["verdict"]]
        for row in verdicts(FIGURES, RESULTS)
    ]
    return table(["claim", "what the paper says", "its value", "ours", "verdict"], rows)


def figures() -> str:
    rows = []
    for name, figure in load(FIGURES).items():
        made = sum(len(Results.read(RESULTS / f"{name}.jsonl").of(run)) for run in figure.runs)
        judged = ", ".join(claim.id for claim in figure.claims)
        shown = f"[{figure.title}](../benchmarks/reproduce/{name}.png)" if made else figure.title
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
        accuracy, lost = ([row[name] for row in rows] for name in ("average_accuracy", "forgetting"))
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
    picture = "![Accuracy or loss against samples and seconds](../benchmarks/reproduce/learning.png)\n"
    return "\n".join([picture, *parts]) if parts else "Not measured yet.\n"


def main() -> None:
    if sys.argv[1:] == ["table"]:
        for name, text in ("figures", figures()), ("claims", claims()):
            fill(DOCUMENT, text, name)
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
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
