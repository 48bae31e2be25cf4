"""`altmin doctor`: what a model's blocks are, what one step does to them, where its time goes, and advice."""

from typing import Annotated

import torch
import typer

from altmin import data as datasets
from altmin import explain, methods, models
from altmin.cli import options, output, parse, training
from altmin.common.describe import plain
from altmin.runners import precision as products
from altmin.training.samples import epoch_order


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="mlp-DEPTHxWIDTH, lenet5, gpt-6x128 and others.")],
    data: options.Data = "mnist",
    method: Annotated[str, typer.Option(metavar="NAME", help="am-adam, am-sgd or am-mem.")] = "am-adam",
    batch_size: options.BatchSize = 200,
    lr: options.Lr = None,
    set_: options.Set = None,
    codes: options.Codes = None,
    order: options.Order = None,
    share: options.Share = None,
    at: options.At = None,
    after: Annotated[int, typer.Option(min=0, help="Train on so many batches before.")] = 0,
    seed: options.Seed = 0,
    data_dir: options.DataDir = None,
    device: options.Device = "cpu",
    precision: options.Precision = "float32",
    threads: options.Threads = None,
    json_file: options.Json = None,
) -> None:
    """Show a model's blocks, what one step does to each of them, and what to do about it."""
    output.check_writable(json_file)
    chosen = training.prepare(device, threads, precision)
    given = parse.all_options(set_ or [], [method], parse.flags(codes, order, share, at, lr))[method]
    known = datasets.dataset(data)
    torch.manual_seed(seed)
    net = models.create(model, known.sample_shape, known.classes, known.tokens).to(chosen)
    x, y = (each.to(chosen) for each in datasets.load(data, "train", data_dir))
    rows = epoch_order(len(x), seed, 0).split(batch_size)
    if after >= len(rows):
        raise ValueError(f"--after {after} leaves no batch: there are {len(rows)} of {batch_size} samples")
    with products.using(precision):
        if after:
            trainer = methods.create(method, net, **given)
            for batch in rows[:after]:
                trainer.step(x[batch], y[batch])
        found = explain(net, x[rows[after]], y[rows[after]], method, **given)
    screen = output.console()
    for table in found.tables():
        screen.print(table)
    for sentence in found.advice:
        print(f"- {sentence}")
    result = {
        "data": data,
        "model": model,
        "method": method,
        "seed": seed,
        "config": {"batch_size": batch_size, "after": after, "precision": precision, "options": plain(given)},
        "environment": output.environment(chosen),
        **found.to_dict(),
    }
    output.write_json(json_file, result)
