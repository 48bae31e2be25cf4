"""`altmin train`: one model, one method, one run, or the same with several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import typer
from torch import nn

from altmin import __version__, methods
from altmin.cli import config, options, output, own_data, parse, torchrun, training
from altmin.runners import ranks
from altmin.runners.distributed import Distributed
from altmin.training import model_file
from altmin.training.trial import Trial, described, with_loss


@dataclass(frozen=True, kw_only=True)
class Train(options.OfRuns):
    method: str = options.option("am-adam", f"One of: {', '.join(methods.names())}.", metavar="NAME")
    lr: float | None = options.rate()
    save_model: Path | None = options.option(
        None, "Keep the trained model here, for altmin predict and altmin evaluate.", metavar="FILE"
    )
    checkpoint: Path | None = options.option(None, "Keep the run here, to resume it.", metavar="FILE")
    checkpoint_every: int | None = options.option(None, "Keep it every N batches too.", min=1)
    resume: bool = options.option(False, "Go on from the checkpoint, as if never stopped.", "--resume")
    record: bool = options.option(
        False, "Compile the steps, which takes seconds; on a GPU they are recorded anyway if they can be.", "--record"
    )
    sample: int | None = options.option(None, "Print N characters of the trained gpt.", min=1)


@options.command(Train)
def train(ctx: typer.Context, given: Train) -> None:
    """Train a model and report how well it does. Under torchrun its processes share every mini-batch."""
    given = replace(given, device=training.chosen_device(given.device))
    _check(given)
    device = training.prepare(torchrun.device(given.device), given.threads, given.precision)
    tables = config.tables(ctx)
    of_method = parse.all_options(given.set_ or [], [given.method], parse.flags(given), tables)[given.method]
    known = own_data.known_data(given)
    given = own_data.settled(given, known, epochs=1)
    record = given.record or (None if torchrun.count() == 1 else False)
    own = own_data.for_target(given.method, of_method, known)
    run = training.configured(given, device, known, options=own, record=record)
    samples = training.load(run, known, given.data_dir)
    ranks.start(device)
    trial = Trial(run, *samples, Distributed if torchrun.started() else lambda method: method, known)
    text: list[str] = []
    rows = _trained(given, trial, text)
    if not torchrun.first():
        return
    name = f"{given.method}, {given.model}, {given.data}"
    measured = lines(name, rows, f"{run.part}_{own_data.measure(known)}", run.epochs)
    for line in [*own_data.headline(known), *measured, *text]:
        print(line)
    if given.save_model is not None:
        print(f"wrote {given.save_model}")
    result = {
        **{key: getattr(given, key) for key in ("data", "model", "method", "seed")},
        **own_data.about(known),
        "config": {
            **{**trial.config(), "device": given.device, "record": given.record},
            **described(run.options),
        },
        "environment": output.environment(device) | ({"ranks": torchrun.count()} if torchrun.started() else {}),
        **{key: rows[0][key] for key in ("batches", "epochs")},
        **({"sample": text[0]} if text else {}),
        **({"seeds": [row["seed"] for row in rows], "runs": rows} if given.seeds > 1 else {}),
    }
    output.write_json(given.json_file, result)
    config.save(given.save_config, ctx, {given.method: of_method}, **training.chosen(given, run))
    output.report_failures({f"seed {row['seed']}": row.get("diverged") for row in rows})


def _check(given: Train) -> None:
    """ValueError for options that exclude each other, before anything is loaded."""
    if torchrun.first():
        output.check_writable(given.json_file, given.checkpoint, given.save_config, given.save_model)
    if torchrun.count() > 1 and (given.seeds > 1 or given.record):
        what = (
            "--record records steps of one process" if given.record else f"--seeds {given.seeds} trains several models"
        )
        raise ValueError(
            f"{what}, and torchrun has started {torchrun.count()} processes for one; leave one of them out"
        )
    if given.checkpoint is None and (given.resume or given.checkpoint_every is not None):
        raise ValueError(f"--{'resume' if given.resume else 'checkpoint-every'} needs --checkpoint FILE")
    if given.checkpoint is not None:
        _check_file(given.checkpoint, given)
    if given.save_model is not None and given.seeds > 1:
        raise ValueError(f"--save-model keeps one model, given --seeds {given.seeds}; leave one of them out")
    if given.sample is not None:
        training.check_sample(given.model, given.data, given.seeds)


def _resumes(given: Train) -> bool:
    """Whether the run goes on from its checkpoint: as asked for, or when torchrun has started its processes again."""
    again = torchrun.restarted() and given.checkpoint is not None and given.checkpoint.exists()
    return given.resume or ranks.Ranks().total(again)[0] > 0


def _check_file(path: Path, given: Train) -> None:
    if given.resume and not path.exists():
        raise ValueError(f"there is no checkpoint {path} to go on from; leave out --resume to begin a run")
    if given.seeds > 1:
        raise ValueError(f"--checkpoint keeps one run, given --seeds {given.seeds}; leave one of them out")


def _trained(given: Train, trial: Trial, text: list[str]) -> list[dict[str, Any]]:
    """A row for each seed. text: gets what the trained model writes, if it is to write something."""

    def finished(model: nn.Module) -> None:
        if given.sample is not None and torchrun.first():
            text.append(training.sampled(model, given.data, given.sample, given.seed))
        if given.save_model is not None and torchrun.first():
            data = model_file.described(trial.known)
            model_file.TrainedModel(network=model, model=given.model, **data).save(given.save_model, __version__)

    with output.progress(f"{given.method} on {given.data}", torchrun.first()) as tick:
        if given.seeds == 1:
            run = replace(trial.run, resume=_resumes(given))
            return [trial.one(run, with_loss(tick), finished)]
        runs = [replace(trial.run, seed=each) for each in range(given.seed, given.seed + given.seeds)]
        trial.check(runs[:1])
        return trial.run_seeds(runs, tick)


def lines(name: str, runs: Sequence[Mapping[str, Any]], measure: str, epochs: int) -> list[str]:
    """A line for each run that came to its end; of several, also their mean ± standard deviation."""
    ended = [run for run in runs if "diverged" not in run]
    found = {key for run in ended for key in run["epochs"][-1]}
    part = measure.partition("_")[0]
    keys = [key for key in (measure, f"{part}_loss", f"{part}_rmse", "train_loss") if key in found]
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
