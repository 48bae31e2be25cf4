"""`altmin doctor`: what one step does to each block of a model, and advice."""

from dataclasses import dataclass
from typing import Annotated

import torch
import typer

from altmin import data, explain, methods, models
from altmin.cli import options, output
from altmin.common.describe import plain
from altmin.training.samples import epoch_order


@dataclass(frozen=True, kw_only=True)
class Doctor:
    model: Annotated[str, typer.Argument(help=options.MODELS)]
    data: options.Data = "mnist"
    method: Annotated[str, typer.Option(help="am-adam, am-sgd or am-mem.")] = "am-adam"
    lr: options.Lr = None
    set_: options.Set = None
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a mini-batch.")] = 200
    after: Annotated[int, typer.Option(min=0, help="Train on N batches before.")] = 0
    seed: options.Seed = 0
    device: options.Device = "auto"
    threads: options.Threads = None
    data_dir: options.DataDir = None
    json_file: options.Json = None


@options.command(Doctor)
def doctor(given: Doctor) -> None:
    """Show what one step does to each block of a model, and what to do about it."""
    output.check_writable(given.json_file)
    device = options.prepare(given.device, given.threads)
    of_method = options.of_method(given)
    known = data.dataset(given.data)
    torch.manual_seed(given.seed)
    net = models.create(given.model, known.sample_shape, known.classes, known.tokens).to(device)
    x, y = (each.to(device) for each in data.load(given.data, "train", given.data_dir))
    *before, rows = epoch_order(len(x), given.seed, 0).split(given.batch_size)[: given.after + 1]
    if len(before) < given.after:
        raise ValueError(f"--after {given.after} leaves no batch of {given.batch_size} samples")
    if before:
        trainer = methods.create(given.method, net, **of_method)
        for batch in before:
            trainer.step(x[batch], y[batch])
    explanation = explain(net, x[rows], y[rows], given.method, **of_method)
    output.console().print(explanation.table())
    for line in explanation.advice:
        print(f"- {line}")
    result = {
        **{name: getattr(given, name) for name in ("data", "model", "method", "seed")},
        "config": {"batch_size": given.batch_size, "after": given.after, "options": plain(of_method)},
        "environment": output.environment(device),
        **explanation.to_dict(),
    }
    output.write_json(given.json_file, result)
