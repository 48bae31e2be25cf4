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
def doctor(args: Doctor) -> None:
    """Show what one step does to each block of a model, and what to do about it."""
    output.check_writable(args.json_file)
    device, of_method = options.prepare(args.device, args.threads), options.of_method(args)
    known = data.dataset(args.data)
    torch.manual_seed(args.seed)
    net = models.create(args.model, known.sample_shape, known.classes, known.tokens).to(device)
    x, y = data.load(args.data, "train", args.data_dir)
    rows = epoch_order(len(x), args.seed, 0)[: args.batch_size]
    explanation = explain(net, x[rows].to(device), y[rows].to(device), args.method, **of_method)
    output.console().print(explanation.table())
    for line in explanation.advice:
        print(f"- {line}")
    config = {"batch_size": args.batch_size, "options": plain(of_method)}
    output.write_json(args.json_file, {**output.result(args, device, config), **explanation.to_dict()})
