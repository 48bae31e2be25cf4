"""`altmin compare`: several methods from the same first weights, over the same data in the same order."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer

from altmin.cli import options, output, plot
from altmin.common.describe import plain
from altmin.training.runs import build, settings_of, train_runs
from altmin.training.samples import batches_per_epoch

EARLY, EPOCHS = 50, 4
"""The early batch that has a column, and how many of the last epochs have one."""


@dataclass(frozen=True, kw_only=True)
class Compare(options.Runs):
    methods: Annotated[str, typer.Option(metavar="NAME,NAME,...", help="The methods.")] = "am-adam,am-mem,adam"
    seeds: Annotated[int, typer.Option(min=1, help="Train with N seeds, from --seed on.")] = 1
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the result: .png, .svg or .pdf.")] = None


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
    config = {**settings_of(run, samples[0]), "device": str(device), "measure": "accuracy"}
    result: dict[str, Any] = {
        **{"data": given.data, "model": given.model, "methods": names, "seeds": list(seeds)},
        "config": {**config, "batches_per_epoch": per_epoch, "options": plain(of_methods)},
        "environment": output.environment(device),
        "runs": rows,
    }
    several_seeds = f", {len(seeds)} seeds: mean ± standard deviation" if len(seeds) > 1 else ""
    output.show(table(result), f"{run.part} accuracy on {given.data}, {given.model}{several_seeds}")
    if given.plot is not None:
        output.write(given.plot, plot.draw(result, given.plot.suffix[1:]))
    output.write_json(given.json_file, result)
    failed = [f"{row['method']}, seed {row['seed']}: {row['diverged']}" for row in rows if "diverged" in row]
    if failed:
        print("altmin:", "; ".join(failed), file=sys.stderr)
        raise typer.Exit(1)


def early_batches(per_epoch: int) -> list[int]:
    """Return when to evaluate in the first epoch: often at its start, and in some ten places later on.

    >>> early_batches(250)
    [1, 2, 5, 10, 15, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    """
    stride = 25 * max(1, round(per_epoch / 250))
    return sorted(n for n in {1, 2, 5, 10, 15, 25, 50, *range(stride, per_epoch, stride)} if n < per_epoch)


def table(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for each method; with several seeds each cell is their mean ± standard deviation."""
    rows, per_epoch = [], result["config"]["batches_per_epoch"]
    ends = [n * per_epoch for n in range(1, result["config"]["epochs"] + 1)]
    for method in result["methods"]:
        own = [run for run in result["runs"] if run["method"] == method]
        if any("diverged" in run for run in own):
            rows.append({"method": method, "seconds": "diverged"})
            continue
        curve = plot.learning_curve(result, method)
        cells = {f"{n} batches": _cell(curve[n], 4) for n in (EARLY, *ends[-EPOCHS:]) if n in curve}
        cells["train loss"] = _cell([run["epochs"][-1]["train_loss"] for run in own], 4)
        cells["seconds"] = _cell([sum(row["seconds"] for row in run["epochs"]) for run in own], 1)
        rows.append({"method": method, **cells})
    return rows


def _cell(values: list[float], digits: int) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"
