"""`altmin predict`: predictions of a trained model for rows of a table, or for the test samples of a data set."""

import csv
import io
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The options of commands that use a trained model."""

    file: Annotated[Path, typer.Argument(metavar="MODEL_FILE", help="Written by altmin train --save-model.")]
    data: Annotated[str | None, typer.Option(help="A table; of a model of a data set, a data set.")] = None
    model: Annotated[str | None, typer.Option(metavar="MODULE:FUNCTION", help="Code of your own in the model.")] = None
    device: options.Device = "auto"
    data_dir: options.DataDir = None

    def load(self) -> tuple[nn.Module, dict[str, Any], Any]:
        """Return the network in the file, its description, and the data: a data frame, or samples and labels."""
        device = options.prepare(self.device, None)
        network, about = model_file.load(self.file, self.model)
        if about["table"] is None:
            known = data_sets.dataset(self.data or about["data"])
            kind = known.sample_shape, known.classes, known.tokens
            if kind != (about["sample_shape"], about["outputs"], about["tokens"]):
                shape, outputs = about["sample_shape"], about["outputs"]
                raise ValueError(f"the model has {outputs} outputs for samples of {shape}; {known.name} has others")
            return network.to(device), about, known.load("test", self.data_dir)
        need("sklearn", "sklearn", "the model of a table")
        from altmin.sklearn import table_model
        from altmin.sklearn.tables import read_table

        try:
            table_model.check(network, about["table"], about["sample_shape"])
        except Exception as error:
            words = " ".join(str(error).split())
            raise ValueError(f"{self.file} does not say how rows become samples of its model: {words:.200}") from error
        if self.data is None:
            raise ValueError(f"--data names the table; the model was trained on {about['data']}")
        return network.to(device), about, read_table(self.data)


@dataclass(frozen=True, kw_only=True)
class Predict(Trained):
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to FILE what else is printed.")] = None
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Give that of each class too.")] = False


@options.command(Predict)
def predict(args: Predict) -> None:
    """Predict the target of every row of a table, as CSV with a line for each row."""
    output.check_writable(args.out, read=(args.file, args.data))
    network, about, rows = args.load()
    if about["tokens"]:
        raise ValueError(f"{about['model']} predicts the next character at each place, not one class of a row")
    if about["table"] is None:
        outputs, classes = outputs_of(network, rows[0]).softmax(1).numpy(), list(range(about["outputs"]))
    else:
        from altmin.sklearn import table_model

        outputs, classes = table_model.predict(network, about["table"], rows), about["table"]["classes"]
    predictions = outputs if classes is None else np.array(classes, dtype=object)[outputs.argmax(1)]
    columns = {"prediction": predictions.tolist()}
    if args.probabilities and classes is not None:
        columns |= {f"probability_{name}": part.tolist() for name, part in zip(classes, outputs.T, strict=True)}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
    if args.out is None:
        print(text.getvalue(), end="")
    else:
        output.write(args.out, text.getvalue().encode())


def outputs_of(network: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs of a network for samples, on the CPU in float64. ValueError if these are not finite."""
    device = next(network.parameters()).device
    with torch.no_grad():
        outputs = torch.cat([network(part.to(device)).double().cpu() for part in x.split(1000)])
    if not outputs.isfinite().all():
        raise ValueError("the model's outputs are not finite; train it again")
    return outputs
