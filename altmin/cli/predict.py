"""`altmin predict`: what a trained model says about rows of a table."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from altmin.cli import options, output, saved
from altmin.data.targets import Classes, Target

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the predictions to FILE; else they are printed.")]
Probabilities = Annotated[bool, typer.Option("--probabilities", help="Give the probability of each class too.")]


def predict(
    model_file: saved.ModelFile,
    data: saved.Data = None,
    out: Out = None,
    probabilities: Probabilities = False,
    model: saved.Own = None,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
) -> None:
    """Predict the target of every row of a table, as CSV with a line for each row."""
    output.check_writable(out)
    trained, _ = saved.opened(model_file, model, device)
    if trained.tokens:
        raise ValueError(
            f"{trained.model} predicts the next character at each place; altmin train --sample prints text"
        )
    if probabilities and not isinstance(trained.target, Classes):
        raise ValueError("--probabilities are those of classes, and this model predicts a number; leave it out")
    name, table = saved.table_of(trained, data)
    content = as_csv(trained.target, trained.outputs_of(saved.inputs(trained, name, table, data_dir)), probabilities)
    if out is None:
        print(content, end="")
    else:
        output.write(out, content.encode())


def as_csv(target: Target, found: Tensor, probabilities: bool) -> str:
    """The predictions as a table: a column `prediction` and, if asked for, one for each class with its probability.
    ValueError for outputs that are not finite."""
    if not found.isfinite().all():
        row = int((~found.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"the model's outputs for row {row + 1} are not finite; its numbers are too large")
    head, columns = ["prediction"], [target.decode(found.numpy()).tolist()]
    if probabilities and isinstance(target, Classes):
        head += [f"probability_{name}" for name in target.names]
        columns += found.double().softmax(1).T.tolist()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([head, *zip(*columns, strict=True)])
    return text.getvalue()
