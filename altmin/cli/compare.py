"""`altmin compare`: several methods from the same first weights, over the same data in the same order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Annotated, Any

import typer
from rich.table import Table

from altmin.cli import options, output, plot
from altmin.common.describe import plain
from altmin.training.runs import build, settings_of, train_runs
from altmin.training.samples import batches_per_epoch

EARLY, YARDSTICK = 50, "adam"
"""The batch that has a column, and the method whose time is the unit."""


@dataclass(frozen=True, kw_only=True)
class Compare(options.Runs):
    methods: Annotated[str, typer.Option(metavar="NAME,NAME,...", help="The methods.")] = "am-adam,am-mem,adam"
    plot: options.Plot = None


@options.command(Compare)
def compare(given: Compare) -> None:
    """Train with several methods and compare how they learn."""
    output.check_writable(given.json_file, picture=given.plot)
    device = options.prepare(given.device, given.threads, given.precision)
    names = options.words(given.methods)
    if not names:
        raise ValueError("--methods takes names, such as am-adam,adam")
    of_methods = options.of_methods(given.set_, names)
    run = given.config(device, epochs=given.epochs or 2)
    samples = given.samples(run)
    built = [build(replace(run, method=name, options=of_methods[name])) for name in names]
    per_epoch = batches_per_epoch(built[0].model, len(samples[0][0]), run.batch_size or 1)
    run = replace(run, eval_batches=run.eval_batches or early_batches(per_epoch))
    seeds = range(given.seed, given.seed + given.seeds)
    several = [replace(run, method=name, options=of_methods[name], seed=n) for n in seeds for name in names]
    with output.progress("compare") as tick:
        trained = train_runs(several, *samples, tick)
    rows = [{"method": each.method, **row} for each, row in zip(several, trained, strict=True)]
    result: dict[str, Any] = {
        **{"data": given.data, "model": given.model, "methods": names, "seeds": list(seeds)},
        "config": {
            **{**settings_of(run, samples[0]), "device": str(device), "measure": "accuracy"},
            **{"batches_per_epoch": per_epoch, "options": plain(of_methods)},
        },
        "environment": output.environment(device),
        "runs": rows,
    }
    output.console().print(table(result))
    if given.plot is not None:
        output.write(given.plot, plot.draw(result, given.plot.suffix[1:]))
    output.write_json(given.json_file, result)
    output.report_failures({f"{row['method']}, seed {row['seed']}": row.get("diverged") for row in rows})


def early_batches(per_epoch: int) -> list[int]:
    """Return when to evaluate in the first epoch: often at its start, and in some ten places later on.

    >>> early_batches(250)
    [1, 2, 5, 10, 15, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    """
    stride = 25 * max(1, round(per_epoch / 250))
    return sorted(n for n in {1, 2, 5, 10, 15, 25, 50, *range(stride, per_epoch, stride)} if n < per_epoch)


def table(result: Mapping[str, Any]) -> Table:
    """Return a table with a row for each method; with several seeds each cell is their mean ± standard deviation."""
    seeds = f", {len(result['seeds'])} seeds: mean ± standard deviation" if len(result["seeds"]) > 1 else ""
    title = f"{plot.measure(result['config']).replace('_', ' ')} on {result['data']}, {result['model']}{seeds}"
    numbers = [_numbers(run, result) for run in result["runs"]]
    columns = list(dict.fromkeys(name for each in numbers for name in each))
    drawn = Table("method", title=title, title_justify="left", header_style="bold")
    for name in columns:
        drawn.add_column(name, justify="right")
    for method in result["methods"]:
        own = [each for each, run in zip(numbers, result["runs"], strict=True) if run["method"] == method]
        if all(own):
            drawn.add_row(method, *(_cell([each[name] for each in own if name in each], name) for name in columns))
        else:
            drawn.add_row(method, "diverged", style="red")
    return drawn


def _numbers(run: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the columns of a run; nothing if it diverged."""
    if "diverged" in run:
        return {}
    column, epochs = plot.measure(result["config"]), run["epochs"]
    numbers = {f"{EARLY} batches": row[column] for row in run["batches"] if row["batch"] == EARLY}
    count = min(len(epochs), 4)
    for n in sorted({round(1 + i * (len(epochs) - 1) / max(1, count - 1)) for i in range(count)}):
        numbers[f"epoch {n}"] = epochs[n - 1][column]
    numbers |= {"best": max(row[column] for row in epochs), "train loss": epochs[-1]["train_loss"]}
    numbers["seconds"] = _seconds(run)
    for other in result["runs"]:
        if (other["method"], other["seed"]) == (YARDSTICK, run["seed"]) and "diverged" not in other:
            numbers[f"time / {YARDSTICK}"] = numbers["seconds"] / _seconds(other)
    return numbers


def _seconds(run: Mapping[str, Any]) -> float:
    return sum(row["seconds"] for row in run["epochs"])


def _cell(values: Sequence[float], name: str) -> str:
    digits = {"seconds": 1, f"time / {YARDSTICK}": 2}.get(name, 4)
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}" if values else ""
