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
def compare(args: Compare) -> None:
    """Train with several methods and compare how they learn."""
    output.check_writable(args.json_file, picture=args.plot)
    device = options.prepare(args.device, args.threads, args.precision)
    names = options.words(args.methods)
    if not names:
        raise ValueError("--methods takes names, such as am-adam,adam")
    of_methods = options.of_methods(args.set_, names)
    run = args.config(device, epochs=args.epochs or 2)
    samples = args.samples(run)
    built = [build(replace(run, method=name, options=of_methods[name])) for name in names]
    per_epoch = batches_per_epoch(built[0].model, len(samples[0][0]), run.batch_size or 1)
    run = replace(run, eval_batches=run.eval_batches or early_batches(per_epoch))
    seeds = range(args.seed, args.seed + args.seeds)
    several = [replace(run, method=name, options=of_methods[name], seed=n) for n in seeds for name in names]
    with output.progress("compare") as tick:
        trained = train_runs(several, *samples, tick)
    rows = [{"method": config.method, **row} for config, row in zip(several, trained, strict=True)]
    config = {**settings_of(run, samples[0]), "device": str(device), "measure": "accuracy"}
    result: dict[str, Any] = {
        **{"data": args.data, "model": args.model, "methods": names, "seeds": list(seeds)},
        "config": {**config, "batches_per_epoch": per_epoch, "options": plain(of_methods)},
        "environment": output.environment(device),
        "runs": rows,
    }
    several_seeds = f", {len(seeds)} seeds: mean ± standard deviation" if len(seeds) > 1 else ""
    output.show(table(result), f"{run.part} accuracy on {args.data}, {args.model}{several_seeds}")
    if args.plot is not None:
        output.write(args.plot, plot.draw(result, args.plot.suffix[1:]))
    output.write_json(args.json_file, result)
    failed = [f"{row['method']}, seed {row['seed']}: {row['diverged']}" for row in rows if "diverged" in row]
    if failed:
        print("altmin:", "; ".join(failed), file=sys.stderr)
        raise typer.Exit(1)


def early_batches(per_epoch: int) -> list[int]:
    """Return the batches of the first epoch after which to evaluate: many at its start, and some ten later on.

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
        runs = [run for run in result["runs"] if run["method"] == method]
        if any("diverged" in run for run in runs):
            rows.append({"method": method, "seconds": "diverged"})
            continue
        curve = plot.learning_curve(result, method)
        cells = {f"{n} batches": _cell(curve[n], 4) for n in (EARLY, *ends[-EPOCHS:]) if n in curve}
        cells["train loss"] = _cell([run["epochs"][-1]["train_loss"] for run in runs], 4)
        cells["seconds"] = _cell([sum(row["seconds"] for row in run["epochs"]) for run in runs], 1)
        rows.append({"method": method, **cells})
    return rows


def _cell(values: list[float], digits: int) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"
