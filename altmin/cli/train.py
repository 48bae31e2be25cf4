"""`altmin train`: one model, one method, one run, or the same with several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer

from altmin.cli import options


def train(
    data: options.Data = "mnist",
    model: options.Model = "mlp-2x100",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="am-adam, am-mem, am-sgd, am-adam-offline, am-mem-offline, adam, sgd and others."
        ),
    ] = "am-adam",
    epochs: options.Epochs = 1,
    batch_size: options.BatchSize = 200,
    lr: Annotated[float | None, typer.Option(help="The learning rate; the method's own choice if not given.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any option of the method; may be given again."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a recurrent model: parallel in time (the default) or sequential."),
    ] = None,
    codes: options.Codes = None,
    schedule: options.Schedule = "constant",
    freeze_first: options.FreezeFirst = False,
    seed: options.Seed = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Train with so many seeds: --seed, and those after it; on a GPU all at once.")
    ] = 1,
    eval_batches: options.EvalBatches = "",
    validation: options.Validation = False,
    limit: options.Limit = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the run in FILE, so that it can be resumed.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Keep it after every so many batches too, not only each epoch.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, as if there had been no break.")
    ] = False,
    data_dir: options.DataDir = None,
    device: options.Device = "cpu",
    precision: options.Precision = "float32",
    record: options.Record = False,
    threads: options.Threads = None,
    json_file: options.Json = None,
) -> None:
    """Train a model and report how well it does."""
    from altmin.cli import output, parse, running

    output.check_writable(json_file, checkpoint)
    if resume and checkpoint is None:
        raise ValueError("--resume needs --checkpoint FILE, to know from where to go on")
    if checkpoint_every is not None and checkpoint is None:
        raise ValueError("--checkpoint-every needs --checkpoint FILE, to know where to keep the run")
    if seeds > 1 and checkpoint is not None:
        raise ValueError(f"--checkpoint keeps one run, given --seeds {seeds}; leave one of them out")
    chosen = running.prepare(device, threads, precision)
    if record and chosen.type != "cuda":
        raise ValueError(f"--record records CUDA graphs, which --device {device} does not have; give --device cuda")
    early = parse.numbers("--eval-batches", eval_batches)
    own = {"lr": lr, "codes": parse.code_solver(codes, sweep)}
    given = parse.settings([*(set_ or []), *(f"{name}={value}" for name, value in own.items() if value is not None)])
    full = parse.plain(parse.method_options(method, given))
    problem = running.load(data, data_dir, validation, limit, chosen)
    trial = running.Trial(problem, model, epochs, batch_size, schedule, chosen, freeze_first, precision, record)
    config = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": full.pop("lr", None),
        "schedule": schedule,
        "freeze_first": freeze_first,
        "precision": precision,
        "record": record,
        "eval_batches": early,
        "evaluated_on": problem.measure.removesuffix("_accuracy"),
        "train_samples": len(problem.train[0]),
        "options": full,
    }
    result = {
        "data": data,
        "model": model,
        "method": method,
        "seed": seed,
        "config": config,
        "environment": output.environment(chosen),
    }
    name = f"{method}, {model}, {data}"
    if seeds > 1:
        numbers = list(range(seed, seed + seeds))
        trial.build(method, given, seed)  # what it has against this model is better known before an hour's training
        with output.progress(f"{method} on {data}", epochs * trial.per_epoch * seeds) as tick:
            runs = trial.run_seeds(method, given, numbers, early, tick)
        for line in lines(name, runs, problem.measure, epochs):
            print(line)
        rows = {key: runs[0][key] for key in ("batches", "epochs")}
        output.write_json(json_file, {**result, **rows, "seeds": numbers, "runs": runs})
        output.report_failures({f"seed {run['seed']}": run.get("diverged") for run in runs})
        return
    with output.progress(f"{method} on {data}", epochs * trial.per_epoch) as tick:
        history = trial.run(
            method,
            given,
            seed,
            eval_batches=early,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            config={
                **{"data": data, "model": model, "method": method},
                **{name: config[name] for name in ("lr", "freeze_first", "precision", "options")},
            },
            report=lambda at: tick(at.batch, f"loss {at.train_loss:.4f}"),
        )
    print(*lines(name, [{"seed": seed, **asdict(history)}], problem.measure, epochs), sep="\n")
    output.write_json(json_file, {**result, **asdict(history)})


def lines(name: str, runs: Sequence[Mapping[str, Any]], measure: str, epochs: int) -> list[str]:
    """A line for each run that came to its end; of several, also their mean ± standard deviation."""
    ended = [run for run in runs if "diverged" not in run]
    values = {
        measure.replace("_", " "): [run["epochs"][-1][measure] for run in ended],
        "train loss": [run["epochs"][-1]["train_loss"] for run in ended],
    }
    said = []
    for i, run in enumerate(ended):
        found = ", ".join(f"{what} {numbers[i]:.4f}" for what, numbers in values.items())
        seconds = sum(row["seconds"] for row in run["epochs"])
        said.append(f"{name}, seed {run['seed']}: {found} after {epochs} epoch{'s' * (epochs > 1)} in {seconds:.1f} s")
    if len(ended) > 1:
        found = ", ".join(f"{what} {mean(v):.4f} ± {stdev(v):.4f}" for what, v in values.items())
        said.append(f"{name}, {len(ended)} seeds: {found}")
    return said
