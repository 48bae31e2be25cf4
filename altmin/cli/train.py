"""`altmin train`: one model and one method, with one seed or several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer

from altmin import data, methods
from altmin.cli import options, output, tables, torchrun
from altmin.common.describe import plain
from altmin.runners import ranks
from altmin.runners.distributed import Distributed
from altmin.training import model_file
from altmin.training.callbacks import EachBatch
from altmin.training.config import RunConfig
from altmin.training.runs import settings_of, train_run, train_runs
from altmin.training.samples import Samples


@dataclass(frozen=True, kw_only=True)
class Train(options.Runs):
    method: Annotated[str, typer.Option(help=f"One of {', '.join(methods.names())}.")] = "am-adam"
    lr: options.Lr = None
    record: Annotated[bool, typer.Option("--record", help="Compile the steps, which takes seconds.")] = False
    save_model: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the model, for predict.")] = None
    checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the run after every epoch.")] = None
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Save it every N batches too.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="What to predict, if --data is a table.")] = None
    task: Annotated[str, typer.Option(help="Of a table: classification, regression or auto.")] = "auto"
    drop: Annotated[str | None, typer.Option(metavar="COLUMN,...", help="Columns of a table to leave out.")] = None
    test_part: Annotated[float, typer.Option(help="The part of a table's rows to test on.")] = 0.2


@options.command(Train)
def train(given: Train) -> None:
    """Train a model and report how well it does. Under torchrun the processes share every mini-batch."""
    _check(given)
    if tables.is_table(given):
        tables.train(given)
        return
    device = options.prepare(given.device, given.threads, given.precision)
    record = given.record or (None if torchrun.count() == 1 else False)
    run = given.config(device, epochs=given.epochs or 1, options=options.of_method(given), record=record)
    samples = given.samples(run)
    ranks.start(device)
    rows = _rows(given, run, samples)
    if not torchrun.first():
        return
    for line in lines(f"{given.method}, {given.model}, {given.data}", rows):
        print(line)
    result = {
        **{key: getattr(given, key) for key in ("data", "model", "method", "seed")},
        "config": {
            **{**settings_of(run, samples[0]), "device": str(device), "record": given.record},
            **{"lr": run.options.get("lr"), "options": plain({k: v for k, v in run.options.items() if k != "lr"})},
        },
        "environment": output.environment(device) | ({"ranks": torchrun.count()} if torchrun.started() else {}),
        **{key: rows[0][key] for key in ("batches", "epochs")},
        **({"seeds": [row["seed"] for row in rows], "runs": rows} if given.seeds > 1 else {}),
    }
    output.write_json(given.json_file, result)
    output.report_failures({f"seed {row['seed']}": row.get("diverged") for row in rows})


def _check(given: Train) -> None:
    """ValueError for options that exclude each other, before anything is loaded."""
    if torchrun.first():
        output.check_writable(given.json_file, given.checkpoint, given.save_model, read=[given.data])
    if torchrun.count() > 1 and given.record:
        raise ValueError("--record is for one process; leave it out under torchrun")
    one = {"--checkpoint": given.checkpoint, "--save-model": given.save_model, "torchrun": torchrun.count() > 1}
    for what in (name for name, value in one.items() if value and given.seeds > 1):
        raise ValueError(f"{what} is for one run, given --seeds {given.seeds}; leave one of them out")


def _again(given: Train) -> bool:
    """Whether torchrun has started the processes again, which then go on from the checkpoint."""
    again = torchrun.restarted() and given.checkpoint is not None and given.checkpoint.exists()
    return ranks.Ranks().total(again)[0] > 0


def _rows(given: Train, run: RunConfig, samples: tuple[Samples, Samples]) -> list[dict[str, Any]]:
    """Train, and return a row for each seed."""
    with output.progress(f"{given.method} on {given.data}", torchrun.first()) as tick:
        if given.seeds == 1:
            run = replace(run, resume=given.resume or _again(given))
            show = EachBatch(lambda at: tick(at.batch, at.batches, f"loss {at.train_loss:.4f}"))
            row, method = train_run(run, *samples, [show], Distributed if torchrun.started() else lambda method: method)
            if given.save_model is not None and torchrun.first():
                known = data.dataset(given.data)
                about: dict[str, Any] = {"model": given.model, "data": given.data, "sample_shape": known.sample_shape}
                model_file.save(
                    given.save_model, method.model, about | {"outputs": known.classes, "tokens": known.tokens}
                )
                print(f"wrote {given.save_model}")
            return [row]
        return train_runs([replace(run, seed=given.seed + i) for i in range(given.seeds)], *samples, tick)


def lines(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each run that did not diverge; of several, also their mean ± standard deviation."""
    ended, shown = [row for row in rows if "diverged" not in row], []
    for row in ended:
        *_, last = row["epochs"]
        values = ", ".join(
            f"{key.replace('_', ' ')} {last[key]:.4f}" for key in last if key not in ("epoch", "seconds")
        )
        seconds = sum(epoch["seconds"] for epoch in row["epochs"])
        shown.append(f"{name}, seed {row['seed']}: {values} after {last['epoch']} epochs in {seconds:.1f} s")
    if len(ended) > 1:
        key = next(key for key in ended[0]["epochs"][-1] if key.endswith("_accuracy"))
        accuracies = [row["epochs"][-1][key] for row in ended]
        shown.append(
            f"{name}, {len(ended)} seeds: {key.replace('_', ' ')} {mean(accuracies):.4f} ± {stdev(accuracies):.4f}"
        )
    return shown
