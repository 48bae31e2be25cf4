"""`altmin train`: one model, one method, one run, or the same with several seeds."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch
import typer
from torch import nn

from altmin import methods
from altmin.cli import config, options, output, parse, ranks, training
from altmin.runners import precision as products
from altmin.training.trial import Checkpoint, Job, Trial, described, with_loss


def train(
    ctx: typer.Context,
    data: options.Data = "mnist",
    model: options.Model = "mlp-2x100",
    method: Annotated[str, typer.Option(metavar="NAME", help=f"One of: {', '.join(methods.names())}.")] = "am-adam",
    epochs: options.Epochs = 1,
    batch_size: options.BatchSize = 200,
    lr: options.Lr = None,
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
    checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the run here, to resume it.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Keep it every so many batches too.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, as if never stopped.")] = False,
    data_dir: options.DataDir = None,
    device: options.Device = "cpu",
    precision: options.Precision = "float32",
    record: Annotated[bool, typer.Option("--record", help="On a GPU: record the step, replay it.")] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Print so many characters of the trained gpt.")] = None,
    layer_ranks: Annotated[
        int,
        typer.Option(
            min=1, help="Under torchrun: spread the layers over so many processes, of am-adam, am-mem or am-sgd."
        ),
    ] = 1,
    micro_batches: Annotated[
        int | None, typer.Option(min=1, help="Parts in which a mini-batch passes through the layers [4].")
    ] = None,
    threads: options.Threads = None,
    config_file: options.Config = None,
    save_config: options.SaveConfig = None,
    json_file: options.Json = None,
) -> None:
    """Train a model and report how well it does. Under torchrun its processes share every mini-batch."""
    if ranks.first():
        output.check_writable(json_file, checkpoint, save_config)
    if ranks.count() > 1 and (seeds > 1 or record):
        what = "--record records steps of one process" if record else f"--seeds {seeds} trains several models"
        raise ValueError(f"{what}, and torchrun has started {ranks.count()} processes for one; leave one of them out")
    ranks.check_layers(layer_ranks, micro_batches, method, record)
    if checkpoint is None and (resume or checkpoint_every is not None):
        raise ValueError(
            f"--{'resume' if resume else 'checkpoint-every'} needs --checkpoint FILE, where the run is kept"
        )
    if resume and checkpoint is not None and not checkpoint.exists():
        raise ValueError(
            f"there is no checkpoint {checkpoint} to go on from; leave out --resume to begin a run that is kept there"
        )
    if seeds > 1 and checkpoint is not None:
        raise ValueError(f"--checkpoint keeps one run, given --seeds {seeds}; leave one of them out")
    if sample is not None:
        training.check_sample(model, data, seeds)
    ranks.check_gpus(device)
    chosen = training.prepare(ranks.device(device), threads, precision)
    if record and chosen.type != "cuda":
        raise ValueError(f"--record records CUDA graphs, which --device {device} does not have; give --device cuda")
    parts = ranks.PARTS if micro_batches is None and layer_ranks > 1 else micro_batches
    early = parse.numbers("--eval-batches", eval_batches, int)
    flags = parse.flags(codes, order, share, at, lr)
    given = parse.all_options(set_ or [], [method], flags, config.tables(ctx))[method]
    augment = training.augmentation(augment, data)
    part = "validation" if validation else "test"
    samples = training.load(data, part, data_dir, limit, chosen)
    ranks.join(chosen)
    trial = Trial(
        data,
        *samples,
        part,
        model,
        epochs,
        batch_size,
        schedule,
        freeze_first,
        precision,
        chosen,
        record,
        early,
        augment,
        warmup,
        partial(ranks.wrapped, layers=layer_ranks, parts=parts),
    )
    jobs = [Job(method, given, each) for each in range(seed, seed + seeds)]
    text: list[str] = []

    def finished(trained: nn.Module) -> None:
        if sample is not None and ranks.first():
            text.append(training.sampled(trained, data, sample, seed))

    with products.using(precision), output.progress(f"{method} on {data}", ranks.first()) as tick:
        if seeds > 1:
            trial.check(jobs[:1])
            runs = trial.run_seeds(jobs, tick)
        else:
            kept = Checkpoint(checkpoint, checkpoint_every, ranks.goes_on(checkpoint, resume))
            runs = [trial.run(jobs[0], with_loss(tick), kept, finished)]
    if not ranks.first():
        return
    for line in lines(f"{method}, {model}, {data}", runs, f"{part}_accuracy", epochs):
        print(line)
    for each in text:
        print(each)
    spread = {} if parts is None else {"layer_ranks": layer_ranks, "micro_batches": parts}
    result = {
        "data": data,
        "model": model,
        "method": method,
        "seed": seed,
        "config": {**trial.config(), "record": record, **spread, **described(given)},
        "environment": output.environment(chosen) | ({"ranks": ranks.count()} if ranks.started() else {}),
        **{key: runs[0][key] for key in ("batches", "epochs")},
    }
    several = {"seeds": [run["seed"] for run in runs], "runs": runs} if seeds > 1 else {}
    output.write_json(json_file, {**result, **({"sample": text[0]} if text else {}), **several})
    chose = {"threads": torch.get_num_threads(), "augment": augment or "none", "micro_batches": parts}
    config.save(save_config, ctx, {method: given}, **chose)
    output.report_failures({f"seed {run['seed']}": run.get("diverged") for run in runs})


def lines(name: str, runs: Sequence[Mapping[str, Any]], measure: str, epochs: int) -> list[str]:
    """A line for each run that came to its end; of several, also their mean ± standard deviation."""
    ended = [run for run in runs if "diverged" not in run]
    found = {key for run in ended for key in run["epochs"][-1]}
    keys = [key for key in (measure, measure.replace("accuracy", "loss"), "train_loss") if key in found]
    values = {key.replace("_", " "): [run["epochs"][-1][key] for run in ended] for key in keys}
    said = []
    for i, run in enumerate(ended):
        reached = ", ".join(f"{what} {numbers[i]:.4f}" for what, numbers in values.items())
        seconds = sum(row["seconds"] for row in run["epochs"])
        said.append(
            f"{name}, seed {run['seed']}: {reached} after {epochs} epoch{'s' * (epochs > 1)} in {seconds:.1f} s"
        )
    if len(ended) > 1:
        reached = ", ".join(f"{what} {mean(v):.4f} ± {stdev(v):.4f}" for what, v in values.items())
        said.append(f"{name}, {len(ended)} seeds: {reached}")
    return said
