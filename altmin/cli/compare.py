"""`altmin compare`: several methods from the same first weights, over the same data in the same order."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from altmin.cli import options


def compare(
    data: options.Data = "mnist",
    model: options.Model = "mlp-2x100",
    methods: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="The methods, separated by commas.")
    ] = "am-adam,am-mem,adam",
    epochs: options.Epochs = 2,
    batch_size: options.BatchSize = 200,
    set_: options.SetByMethod = None,
    codes: options.Codes = None,
    schedule: options.Schedule = "constant",
    freeze_first: options.FreezeFirst = False,
    seed: options.Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Run with so many seeds: --seed, and those after it.")] = 1,
    eval_batches: options.EvalBatches = "",
    validation: options.Validation = False,
    limit: options.Limit = None,
    data_dir: options.DataDir = None,
    device: options.Device = "cpu",
    precision: options.Precision = "float32",
    threads: options.Threads = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the learning curves: .png, .svg or .pdf.")
    ] = None,
    json_file: options.Json = None,
) -> None:
    """Train with several methods and compare how they learn."""
    from altmin.cli import output, parse, running, summary

    output.check_writable(plot, json_file)
    if plot is not None:
        from altmin import plot as picture  # takes a second to import, so only for those who want one

        picture.check_format(plot)
    chosen = running.prepare(device, threads, precision)
    names = parse.names("--methods", methods)
    given = parse.settings_by_method(set_ or [], names)
    if solver := parse.code_solver(codes):
        parse.add_codes(given, solver)
    full = {name: parse.plain(parse.method_options(name, given[name])) for name in names}
    problem = running.load(data, data_dir, validation, limit, chosen)
    trial = running.Trial(problem, model, epochs, batch_size, schedule, chosen, freeze_first, precision)
    early = parse.numbers("--eval-batches", eval_batches) or early_batches(trial.per_epoch)
    for name in names:  # what a method has against this model is better known before another trains for hours
        trial.build(name, given[name], seed)
    runs: list[dict[str, Any]] = []
    batches = epochs * trial.per_epoch
    with output.progress("compare", batches * seeds * len(names)) as tick:
        for run_seed in range(seed, seed + seeds):
            for name in names:
                label = functools.partial(tick, text=f"{name}, seed {run_seed}")
                row = trial.attempt(name, given[name], run_seed, early, label, batches * len(runs))
                runs.append({"method": name, **row})
    result = {
        "data": data,
        "model": model,
        "methods": names,
        "seeds": list(range(seed, seed + seeds)),
        "config": {
            "epochs": epochs,
            "batch_size": batch_size,
            "schedule": schedule,
            "freeze_first": freeze_first,
            "precision": precision,
            "eval_batches": early,
            "evaluated_on": problem.measure.removesuffix("_accuracy"),
            "train_samples": len(problem.train[0]),
            "batches_per_epoch": trial.per_epoch,
            "options": full,
        },
        "environment": output.environment(chosen),
        "runs": runs,
    }
    output.console().print(summary.table(result))
    if plot is not None:
        output.write(plot, picture.curves(result, plot.suffix[1:]))
    output.write_json(json_file, result)
    output.report_failures({f"{run['method']}, seed {run['seed']}": run.get("diverged") for run in runs})


def early_batches(per_epoch: int) -> list[int]:
    """When to evaluate in the first epoch: often at its start, and in some ten places later on.

    >>> early_batches(250)
    [1, 2, 5, 10, 15, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    """
    stride = 25 * max(1, round(per_epoch / 250))
    return sorted(n for n in {1, 2, 5, 10, 15, 25, 50, *range(stride, per_epoch, stride)} if n < per_epoch)
