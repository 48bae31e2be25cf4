"""`python -m reproduction search`: looks for the settings with which a figure's runs are made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from rich.table import Table

from altmin.cli import options, output
from reproduction.commands.figure import OfFigures
from reproduction.figure import Figure, choose, load
from reproduction.folders import history
from reproduction.measurement import Setting
from reproduction.run import Run
from reproduction.search import search as look
from reproduction.settings import History

REMARK = "The paper's values belong to its own scaling of mu and of the rates, which it does not give."


@dataclass(frozen=True, kw_only=True)
class Search(OfFigures):
    figure: Annotated[str | None, typer.Argument(metavar="FIGURE", help="Its name; none lists those to search.")] = None
    trials: Annotated[
        int | None, typer.Option(min=1, help="Configurations of each Bayesian search; a grid is always whole.")
    ] = None
    json_file: options.Json = None


@options.command(Search)
def search(given: Search) -> None:
    """Look for the settings of a figure's runs on validation samples; its file takes the best. What was tried before is
    kept, so that a search can be stopped and go on."""
    known, figure, json_file = load(given.figures), given.figure, given.json_file
    if figure is None:
        output.console().print(listed(known, given.results))
        return
    chosen, path = with_searches(known, figure, given.trials).only(given.only), history(given.results, figure)
    place = options.prepare(given.device, given.threads)
    rows = History.read(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    output.check_writable(path, json_file)
    try:
        with output.progress(f"search {figure}") as tick:
            left = look(chosen.searches, rows, Setting(place, given.data_dir, output.environment(place)), tick)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; what was tried is in {path}, and the same command goes on") from None
    found = summary(chosen, rows)
    output.console().print(shown(found))
    for each in left:
        output.console().print(f"not tried: {each}")
    output.console().print(f"history in {path}")
    output.write_json(json_file, found)


def with_searches(figures: Mapping[str, Figure], name: str, trials: int | None) -> Figure:
    """A figure by name, whose searches have the given number of trials. ValueError for an unknown one, or one without
    searches."""
    figure = choose(figures, name)
    if not figure.searches:
        some = ", ".join(name for name, each in figures.items() if each.searches) or "none has any"
        raise ValueError(f"figure {name!r} declares no searches, its settings are fixed; those with searches: {some}")
    if trials is None:
        return figure
    return replace(figure, searches=[replace(each, trials=trials) for each in figure.searches])


def listed(figures: Mapping[str, Figure], results: Path) -> Table:
    """The figures with searches."""
    table = Table("figure", "shows", "searches", "configurations", "tried", header_style="bold")
    for name, figure in figures.items():
        if figure.searches:
            size, rows = sum(each.size for each in figure.searches), History.read(history(results, name))
            tried = sum(len(each.tried(rows)) for each in figure.searches)
            table.add_row(name, figure.title, str(len(figure.searches)), str(size), str(tried))
    return table


def summary(figure: Figure, rows: History) -> list[dict[str, Any]]:
    """What each search has found."""
    found = []
    for each in figure.searches:
        best, run = each.best(rows), each.run
        if best is None:  # it cannot be made here
            continue
        found.append(
            {
                **{"data": run.data, "model": run.model, "method": run.method, "tried": len(each.tried(rows))},
                **{"options": best["options"], **_judged(run, mean(best["accuracy"]))},
                "paper": dict(each.paper),
            }
        )
    return found


def shown(found: list[dict[str, Any]]) -> Table:
    table = Table("data", "model", "method", "tried", "best options", "validation accuracy", header_style="bold")
    paper = any(row["paper"] for row in found)
    if paper:
        table.add_column("the paper's")
        table.caption = REMARK
    for row in found:
        cells = [row["data"], row["model"], row["method"], str(row["tried"]), _words(row["options"])]
        value = row.get("validation_accuracy", row.get("validation_loss"))
        cells += [
            f"{value:.4f}" if "validation_accuracy" in row else f"loss {value:.4g}",
            *([_words(row["paper"])] if paper else []),
        ]
        table.add_row(*cells)
    return table


def _judged(run: Run, score: float) -> dict[str, float]:
    """What a score stands for."""
    lower = getattr(run, "lower_is_better", False)
    return {"validation_loss": -score} if lower else {"validation_accuracy": score}


def _words(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
