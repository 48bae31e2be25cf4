"""`altmin compare`: several methods from the same first weights, over the same data in the same order."""

from dataclasses import replace
from typing import Annotated

import torch
import typer

from altmin.cli import compare_table, config, options, output, parse, training
from altmin.common.describe import plain
from altmin.runners import precision as products
from altmin.training.trial import Job, Trial


def compare(
    ctx: typer.Context,
    data: options.Data = "mnist",
    model: options.Model = "mlp-2x100",
    methods: Annotated[str, typer.Option(metavar="NAME,NAME,...", help="The methods.")] = "am-adam,am-mem,adam",
    epochs: options.Epochs = 2,
    batch_size: options.BatchSize = 200,
    set_: options.Set = None,
    codes: options.Codes = None,
    order: options.Order = None,
    share: options.Share = None,
    at: options.At = None,
    schedule: options.Schedule = "constant",
    warmup: options.Warmup = 0,
    augment: options.Augment = None,
    freeze_first: options.FreezeFirst = False,
    seed: options.Seed = 0,
    seeds: options.Seeds = 1,
    eval_batches: options.EvalBatches = "",
    validation: options.Validation = False,
    limit: options.Limit = None,
    data_dir: options.DataDir = None,
    device: options.Device = "cpu",
    precision: options.Precision = "float32",
    threads: options.Threads = None,
    config_file: options.Config = None,
    save_config: options.SaveConfig = None,
    plot: options.Plot = None,
    json_file: options.Json = None,
) -> None:
    """Train with several methods and compare how they learn."""
    output.check_writable(json_file, save_config, picture=plot)
    chosen = training.prepare(device, threads, precision)
    names = parse.names("--methods", methods)
    given = parse.all_options(set_ or [], names, parse.flags(codes, order, share, at), config.tables(ctx))
    part = "validation" if validation else "test"
    samples = training.load(data, part, data_dir, limit, chosen)
    trial = Trial(data, *samples, part, model, epochs, batch_size, schedule, freeze_first, precision, chosen)
    jobs = [Job(name, given[name], each) for each in range(seed, seed + seeds) for name in names]
    per_epoch = trial.check(jobs[: len(names)])
    early = parse.numbers("--eval-batches", eval_batches, int) or early_batches(per_epoch)
    augment = training.augmentation(augment, data)
    trial = replace(trial, eval_batches=early, augment=augment, warmup=warmup)
    with products.using(precision), output.progress("compare") as tick:
        runs = [{"method": job.method, **run} for job, run in zip(jobs, trial.in_turn(jobs, tick), strict=True)]
    result = {
        "data": data,
        "model": model,
        "methods": names,
        "seeds": list(range(seed, seed + seeds)),
        "config": {**trial.config(), "batches_per_epoch": per_epoch, "options": plain(given)},
        "environment": output.environment(chosen),
        "runs": runs,
    }
    output.console().print(compare_table.table(result))
    if plot is not None:
        from altmin.cli import compare_picture  # matplotlib takes a second to import

        output.write(plot, compare_picture.draw(result, plot.suffix[1:]))
    output.write_json(json_file, result)
    config.save(save_config, ctx, given, threads=torch.get_num_threads(), augment=augment or "none")
    output.report_failures({f"{run['method']}, seed {run['seed']}": run.get("diverged") for run in runs})


def early_batches(per_epoch: int) -> list[int]:
    """When to evaluate in the first epoch: often at its start, and in some ten places later on.

    >>> early_batches(250)
    [1, 2, 5, 10, 15, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    """
    stride = 25 * max(1, round(per_epoch / 250))
    return sorted(n for n in {1, 2, 5, 10, 15, 25, 50, *range(stride, per_epoch, stride)} if n < per_epoch)
