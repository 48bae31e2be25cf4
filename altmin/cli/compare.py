"""`altmin compare`: several methods from the same first weights, over the same data in the same order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

import typer
from rich.table import Table

from altmin.cli import config, options, output, own_data, parse, training
from altmin.common.describe import plain
from altmin.training.trial import Trial

EARLY = 50
YARDSTICK = "adam"
Run = Mapping[str, Any]
Column = tuple[Callable[[Run], float | None], int]
"""A number of a run, and its digits."""


@dataclass(frozen=True, kw_only=True)
class Compare(options.OfRuns):
    methods: str = options.option("am-adam,am-mem,adam", "The methods.", metavar="NAME,NAME,...")
    epochs: int | None = options.option(None, "Passes over the training samples [2; over a table 50].", min=1)
    plot: options.Plot = None


@options.command(Compare)
def compare(ctx: typer.Context, given: Compare) -> None:
    """Train with several methods and compare how they learn."""
    output.check_writable(given.json_file, given.save_config, picture=given.plot)
    given = replace(given, device=training.chosen_device(given.device))
    device = training.prepare(given.device, given.threads, given.precision)
    names = parse.names("--methods", given.methods)
    of_methods = parse.all_options(given.set_ or [], names, parse.flags(given), config.tables(ctx))
    known = own_data.known_data(given)
    given = own_data.settled(given, known, epochs=2)
    own = {name: own_data.for_target(name, of_methods[name], known) for name in names}
    run = training.configured(given, device, known)
    trial = Trial(run, *training.load(run, known, given.data_dir), known=known)
    per_epoch = trial.check([replace(run, method=name, options=own[name]) for name in names])
    trial = replace(trial, run=replace(run, eval_batches=run.eval_batches or early_batches(per_epoch)))
    seeds = range(given.seed, given.seed + given.seeds)
    runs = [replace(trial.run, method=name, options=own[name], seed=n) for n in seeds for name in names]
    with output.progress("compare") as tick:
        rows = [{"method": each.method, **row} for each, row in zip(runs, trial.in_turn(runs, tick), strict=True)]
    result = {
        "data": given.data,
        "model": given.model,
        "methods": names,
        "seeds": list(seeds),
        **own_data.about(known),
        "config": {
            **{**trial.config(), "device": given.device, "measure": own_data.measure(known)},
            **{"batches_per_epoch": per_epoch, "options": plain(own)},
        },
        "environment": output.environment(device),
        "runs": rows,
    }
    for line in own_data.headline(known):
        print(line)
    output.console().print(table(result))
    if given.plot is not None:
        from altmin.cli import compare_picture  # matplotlib takes a second to import

        output.write(given.plot, compare_picture.draw(result, given.plot.suffix[1:]))
    output.write_json(given.json_file, result)
    config.save(given.save_config, ctx, of_methods, **training.chosen(given, run))
    output.report_failures({f"{row['method']}, seed {row['seed']}": row.get("diverged") for row in rows})


def early_batches(per_epoch: int) -> list[int]:
    """When to evaluate in the first epoch: often at its start, and in some ten places later on.

    >>> early_batches(250)
    [1, 2, 5, 10, 15, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    """
    stride = 25 * max(1, round(per_epoch / 250))
    return sorted(n for n in {1, 2, 5, 10, 15, 25, 50, *range(stride, per_epoch, stride)} if n < per_epoch)


def table(result: Mapping[str, Any]) -> Table:
    """One row for each method; with several seeds each cell is their mean ± standard deviation."""
    seeds = f", {len(result['seeds'])} seeds: mean ± standard deviation" if len(result["seeds"]) > 1 else ""
    title = f"{title_of(result['config'])} on {result['data']}, {result['model']}{seeds}"
    columns = _columns(result)
    drawn = Table("method", title=title, title_justify="left", header_style="bold")
    for name in columns:
        drawn.add_column(name, justify="right")
    for method in result["methods"]:
        runs = [run for run in result["runs"] if run["method"] == method]
        if any("diverged" in run for run in runs):
            drawn.add_row(method, "diverged", style="red")
        else:
            drawn.add_row(method, *(_cell([f(run) for run in runs], digits) for f, digits in columns.values()))
    return drawn


def column_of(config: Run) -> str:
    """The column of what is compared. Results of earlier versions compare accuracies."""
    return f"{config['evaluated_on']}_{config.get('measure', 'accuracy')}"


def title_of(config: Run) -> str:
    """What is compared, in words."""
    return column_of(config).replace("_", " ").replace("r2", "R²")


def _columns(result: Mapping[str, Any]) -> dict[str, Column]:
    measure, epochs = column_of(result["config"]), result["config"]["epochs"]
    columns: dict[str, Column] = {}
    if EARLY in result["config"]["eval_batches"]:
        columns[f"{EARLY} batches"] = lambda run: {row["batch"]: row[measure] for row in run["batches"]}[EARLY], 4
    for n in _spread_out(epochs, 4):
        columns[f"epoch {n}"] = lambda run, n=n: run["epochs"][n - 1][measure], 4  # type: ignore[misc]
    columns["best"] = lambda run: max(row[measure] for row in run["epochs"]), 4
    columns["train loss"] = lambda run: run["epochs"][-1]["train_loss"], 4
    columns["seconds"] = _seconds, 1
    if YARDSTICK in result["methods"]:
        adam = [run for run in result["runs"] if run["method"] == YARDSTICK and "diverged" not in run]
        times = {run["seed"]: _seconds(run) for run in adam}
        columns[f"time / {YARDSTICK}"] = (
            lambda run: _seconds(run) / times[run["seed"]] if run["seed"] in times else None,
            2,
        )
    return columns


def _spread_out(epochs: int, most: int) -> list[int]:
    """At most `most` of the epochs, with the first and the last.

    >>> _spread_out(3, 4), _spread_out(50, 4)
    ([1, 2, 3], [1, 17, 34, 50])
    """
    count = min(epochs, most)
    return sorted({round(1 + i * (epochs - 1) / max(1, count - 1)) for i in range(count)})


def _seconds(run: Run) -> float:
    return sum(row["seconds"] for row in run["epochs"])


def _cell(values: Sequence[float | None], digits: int) -> str:
    """Mean ± standard deviation of the values that there are."""
    known = [value for value in values if value is not None]
    spread = f" ± {stdev(known):.{digits}f}" if len(known) > 1 else ""
    return f"{mean(known):.{digits}f}{spread}" if known else ""
