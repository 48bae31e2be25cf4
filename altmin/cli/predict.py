"""`altmin predict`: what a trained model says about rows of a table, or about the test samples of a data set."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

from altmin import data as data_sets
from altmin.cli import options, output
from altmin.common.optional import need
from altmin.training import model_file

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL_FILE", help="Written by altmin train --save-model.")]
Data = Annotated[str | None, typer.Option(help="A table; of a model of a data set, a data set.")]
Own = Annotated[str | None, typer.Option("--model", metavar="MODULE:FUNCTION", help="Code of your own in the model.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the predictions to FILE; else they are printed.")]
Probabilities = Annotated[bool, typer.Option("--probabilities", help="Give the probability of each class too.")]


def predict(
    file: ModelFile,
    data: Data = None,
    out: Out = None,
    probabilities: Probabilities = False,
    model: Own = None,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
) -> None:
    """Predict the target of every row of a table, as CSV with a line for each row."""
    output.check_writable(out, read=(file, data))
    network, about, rows = load(file, data, model, options.prepare(device, None), data_dir)
    if about["tokens"]:
        raise ValueError(f"{about['model']} predicts the next character at each place, not one class of a row")
    if about["table"] is None:
        found, classes = outputs_of(network, rows[0]).softmax(1).numpy(), list(range(about["outputs"]))
    else:
        from altmin.sklearn import table_model

        found, classes = table_model.predict(network, about["table"], rows), about["table"]["classes"]
    predictions = found if classes is None else np.array(classes, dtype=object)[found.argmax(1)]
    columns = {"prediction": predictions.tolist()}
    if probabilities and classes is not None:
        columns |= {f"probability_{name}": part.tolist() for name, part in zip(classes, found.T, strict=True)}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
    if out is None:
        print(text.getvalue(), end="")
    else:
        output.write(out, text.getvalue().encode())


def load(
    file: Path, name: str | None, own: str | None, device: torch.device, data_dir: Path | None
) -> tuple[nn.Module, dict[str, Any], Any]:
    """Return the network in a model file, what is said of it, and the data: a data frame, or samples and labels."""
    network, about = model_file.load(file, own)
    if about["table"] is None:
        known = data_sets.dataset(name or about["data"])
        if known.sample_shape != about["sample_shape"]:
            raise ValueError(f"the model takes samples of {about['sample_shape']}, given those of {known.name}")
        return network.to(device), about, known.load("test", data_dir)
    need("sklearn", "sklearn", "the model of a table")
    from altmin.sklearn.tables import read_table

    if name is None:
        raise ValueError(f"--data names the table; the model was trained on {about['data']}")
    return network.to(device), about, read_table(name)


def outputs_of(network: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs of a network for samples, on the CPU in float64."""
    device = next(network.parameters()).device
    with torch.no_grad():
        return torch.cat([network(part.to(device)).double().cpu() for part in x.split(1000)])
