"""`altmin compare`: several methods from the same first weights, over the same data in the same order."""

from dataclasses import dataclass, replace

import torch
import typer

from altmin.cli import compare_table, config, options, output, parse, training
from altmin.common.describe import plain
from altmin.training.trial import Trial


@dataclass(frozen=True, kw_only=True)
class Compare(options.OfRuns):
    methods: str = options.option("am-adam,am-mem,adam", "The methods.", metavar="NAME,NAME,...")
    epochs: int = options.option(2, "Passes over the training samples.", min=1)
    plot: options.Plot = None


@options.command(Compare)
def compare(ctx: typer.Context, given: Compare) -> None:
    """Train with several methods and compare how they learn."""
    output.check_writable(given.json_file, given.save_config, picture=given.plot)
    device = training.prepare(given.device, given.threads, given.precision)
    names = parse.names("--methods", given.methods)
    of_methods = parse.all_options(given.set_ or [], names, parse.flags(given), config.tables(ctx))
    run = training.configured(given, device)
    trial = Trial(run, *training.load(run, given.data_dir))
    per_epoch = trial.check([replace(run, method=name, options=of_methods[name]) for name in names])
    trial = replace(trial, run=replace(run, eval_batches=run.eval_batches or early_batches(per_epoch)))
    seeds = range(given.seed, given.seed + given.seeds)
    runs = [replace(trial.run, method=name, options=of_methods[name], seed=n) for n in seeds for name in names]
    with output.progress("compare") as tick:
        rows = [{"method": each.method, **row} for each, row in zip(runs, trial.in_turn(runs, tick), strict=True)]
    result = {
        "data": given.data,
        "model": given.model,
        "methods": names,
        "seeds": list(seeds),
        "config": {**trial.config(), "batches_per_epoch": per_epoch, "options": plain(of_methods)},
        "environment": output.environment(device),
        "runs": rows,
    }
    output.console().print(compare_table.table(result))
    if given.plot is not None:
        from altmin.cli import compare_picture  # matplotlib takes a second to import

        output.write(given.plot, compare_picture.draw(result, given.plot.suffix[1:]))
    output.write_json(given.json_file, result)
    chosen = {"threads": torch.get_num_threads(), "augment": run.augment or "none"}
    config.save(given.save_config, ctx, of_methods, **chosen)
    output.report_failures({f"{row['method']}, seed {row['seed']}": row.get("diverged") for row in rows})


def early_batches(per_epoch: int) -> list[int]:
    """When to evaluate in the first epoch: often at its start, and in some ten places later on.

    >>> early_batches(250)
    [1, 2, 5, 10, 15, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    """
    stride = 25 * max(1, round(per_epoch / 250))
    return sorted(n for n in {1, 2, 5, 10, 15, 25, 50, *range(stride, per_epoch, stride)} if n < per_epoch)
