"""`python -m reproduction search`: looks for the settings with which a figure's runs are made."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean
from typing import Annotated, Any

import typer

from altmin.cli import output
from altmin.cli.options import DataDir, Device, Json, Threads
from reproduction.commands import options
from reproduction.figure import Figure, choose, load
from reproduction.results import Results
from reproduction.search import history
from reproduction.search import search as look
from reproduction.tables import markdown


def search(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the figure.")],
    only: options.Only = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Configurations in all of each Bayesian search.")] = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
    threads: Threads = None,
    json_file: Json = None,
) -> None:
    """Look for the settings of a figure's runs on validation samples; it takes the best. What was tried before is not
    tried again, so that a search can be stopped and go on."""
    output.check_writable(json_file)
    figures = load()
    chosen = choose(figures, name)
    if not chosen.searches:
        some = ", ".join(name for name, each in figures.items() if each.searches)
        raise ValueError(f"figure {name!r} declares no searches; those with searches: {some}")
    if trials is not None:
        chosen = replace(chosen, searches=[replace(each, trials=trials) for each in chosen.searches])
    chosen, place, rows = chosen.only(only), options.setting(device, threads, data_dir), Results.read(history(name))
    try:
        with output.progress(f"search {name}") as tick:
            left = look(chosen.searches, rows, place, tick)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; what was tried is in {rows.path}, and the same command goes on") from None
    found = summary(chosen, rows)
    print(shown(found))
    for each in left:
        print(f"not tried: {each}")
    print(f"{len(rows.rows)} configurations in {rows.path}")
    output.write_json(json_file, found)


def summary(figure: Figure, rows: Results) -> list[dict[str, Any]]:
    """Return what each search has found. "score" is the validation accuracy, or a validation loss with a minus sign."""
    found = []
    for each in figure.searches:
        best, about = each.best(rows), {name: getattr(each.run, name) for name in ("data", "model", "method")}
        if best is not None:
            result = {"tried": len(each.tried(rows)), "options": best["options"], "score": mean(best["accuracy"])}
            found.append({**about, **result, "paper": dict(each.paper)})
    return found


def shown(found: list[dict[str, Any]]) -> str:
    def values(numbers: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())

    rows = [
        [
            *(row["data"], row["model"], row["method"], str(row["tried"])),
            *(values(row["options"]), f"{row['score']:.4f}", values(row["paper"])),
        ]
        for row in found
    ]
    return markdown(["data", "model", "method", "tried", "best options", "validation score", "the paper's"], rows)
