"""`altmin doctor`: what a model's blocks are, what one step does to them, where its time goes, and advice."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer

from altmin import data as datasets
from altmin import explain, methods, models
from altmin.cli import config, options, output, parse, training
from altmin.common.describe import plain
from altmin.training.samples import epoch_order


@dataclass(frozen=True, kw_only=True)
class Doctor(options.OfSamples):
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="mlp-DEPTHxWIDTH, lenet5, gpt-6x128 and others; or MODULE:FUNCTION, as for train.",
            callback=config.own_model,
        ),
    ]
    method: str = options.option("am-adam", "am-adam, am-sgd or am-mem.", metavar="NAME")
    lr: float | None = options.rate()
    batch_size: int = options.batch()
    after: int = options.option(0, "Train on N batches before.", min=0)


@options.command(Doctor)
def doctor(ctx: typer.Context, given: Doctor) -> None:
    """Show a model's blocks, what one step does to each of them, and what to do about it."""
    output.check_writable(given.json_file)
    device = training.prepare(given.device, given.threads, given.precision)
    of_method = parse.all_options(given.set_ or [], [given.method], parse.flags(given))[given.method]
    known = datasets.dataset(given.data)
    torch.manual_seed(given.seed)
    net = models.create(given.model, known.sample_shape, known.classes, known.tokens).to(device)
    x, y = (each.to(device) for each in datasets.load(given.data, "train", given.data_dir))
    rows = epoch_order(len(x), given.seed, 0).split(given.batch_size)
    if given.after >= len(rows):
        raise ValueError(f"--after {given.after} leaves no batch: there are {len(rows)} of {given.batch_size} samples")
    if given.after:
        trainer: Any = methods.create(given.method, net, **of_method)
        for batch in rows[: given.after]:
            trainer.step(x[batch], y[batch])
    batch = rows[given.after]
    found = explain(net, x[batch], y[batch], given.method, **of_method)
    output.console().print(found.table())
    for sentence in found.advice:
        print(f"- {sentence}")
    settings = {name: getattr(given, name) for name in ("batch_size", "after")}
    result = {
        **{name: getattr(given, name) for name in ("data", "model", "method", "seed")},
        "config": {**settings, "options": plain(of_method)},
        "environment": output.environment(device),
        **found.to_dict(),
    }
    output.write_json(given.json_file, result)
