"""`altmin train`: one model, one method, one seed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from altmin import data, methods
from altmin.cli import options, output, tables, torchrun
from altmin.common.describe import plain
from altmin.runners import ranks
from altmin.runners.distributed import Distributed
from altmin.training.callbacks import EachBatch
from altmin.training.runs import settings_of, train_run


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
    task: Annotated[tables.Task, typer.Option(help="Of a table; auto decides by the target.")] = "auto"
    drop: Annotated[str, typer.Option(metavar="COLUMN,...", help="Columns of a table to leave out.")] = ""
    test_part: Annotated[float, typer.Option(help="The part of a table's rows to test on.")] = 0.2


@options.command(Train)
def train(args: Train) -> None:
    """Train a model and report how well it does. Under torchrun the processes share every mini-batch."""
    first, alone = torchrun.first(), torchrun.count() == 1
    if first:
        output.check_writable(args.json_file, args.checkpoint, args.save_model, read=[args.data])
    if Path(args.data).suffix:  # a table, such as rows.csv
        tables.train(args)
        return
    if args.record and not alone:
        raise ValueError("--record is for one process; leave it out under torchrun")
    device = options.prepare(args.device, args.threads, args.precision)
    record = args.record or (None if alone else False)
    run = args.config(device, epochs=args.epochs or 1, options=options.of_method(args), record=record)
    samples = args.samples(run)
    ranks.start(device)
    run = replace(run, resume=args.resume or _again(args))
    with output.progress(f"{args.method} on {args.data}", first) as tick:
        show = EachBatch(lambda at: tick(at.batch, at.batches, f"loss {at.train_loss:.4f}"))
        row, method = train_run(run, *samples, [show], Distributed if torchrun.started() else lambda method: method)
    if not first:
        return
    known = data.dataset(args.data)
    about = {"sample_shape": known.sample_shape, "outputs": known.classes, "tokens": known.tokens}
    output.write_model(args, method.model, **about)
    config = {**settings_of(run, samples[0]), "device": str(device), "record": args.record}
    of_method = plain(run.options)
    config |= {"lr": of_method.pop("lr", None), "options": of_method}
    history = {"batches": row["batches"], "epochs": row["epochs"]}
    output.write_run(args, output.result(args, device, config) | history)


def _again(args: Train) -> bool:
    """Return whether torchrun has started the processes again, which then go on from the checkpoint."""
    again = torchrun.restarted() and args.checkpoint is not None and args.checkpoint.exists()
    return ranks.Ranks().total(again)[0] > 0
