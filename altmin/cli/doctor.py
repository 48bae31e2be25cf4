"""`altmin doctor`: what one step does to each block of a model, and advice."""

from dataclasses import dataclass
from typing import Annotated

import torch
import typer

from altmin import data, explain, models
from altmin.cli import options, output
from altmin.common.describe import plain
from altmin.training.samples import epoch_order


@dataclass(frozen=True, kw_only=True)
class Doctor(options.Common):
    model: Annotated[str, typer.Argument(help=options.MODELS)]
    method: Annotated[str, typer.Option(help="am-adam, am-sgd or am-mem.")] = "am-adam"
    lr: options.Lr = None
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a mini-batch.")] = 200


@options.command(Doctor)
def doctor(given: Doctor) -> None:
    """Show what one step does to each block of a model, and what to do about it."""
    output.check_writable(given.json_file)
    device, of_method = options.prepare(given.device, given.threads), options.of_method(given)
    known = data.dataset(given.data)
    torch.manual_seed(given.seed)
    net = models.create(given.model, known.sample_shape, known.classes, known.tokens).to(device)
    x, y = data.load(given.data, "train", given.data_dir)
    rows = epoch_order(len(x), given.seed, 0)[: given.batch_size]
    explanation = explain(net, x[rows].to(device), y[rows].to(device), given.method, **of_method)
    output.console().print(explanation.table())
    for line in explanation.advice:
        print(f"- {line}")
    config = {"batch_size": given.batch_size, "options": plain(of_method)}
    output.write_json(given.json_file, {**output.result(given, device, config), **explanation.to_dict()})
