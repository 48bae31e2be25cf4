"""What `predict` and `evaluate` share: the model in a file, and samples for it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from altmin import data
from altmin.cli import options
from altmin.data.columns import Table
from altmin.training.model_file import TrainedModel

TABLES = "a table of your own: .csv, .csv.gz, .tsv, .parquet, or .npz with arrays x and y"
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL_FILE", help="Written by altmin train --save-model.")]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"The data: {TABLES}; or a data set, by default that of training, for its test samples.",
    ),
]
Own = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:FUNCTION",
        help="The function that makes the model, if it is one of your own: a file cannot have code run by itself.",
    ),
]


def opened(path: Path, own: str | None, device: str) -> tuple[TrainedModel, torch.device]:
    """The model in a file, on a device."""
    place = options.prepare(device, None)
    trained = TrainedModel.load(path, own)
    return replace(trained, network=trained.network.to(place)), place


def table_of(trained: TrainedModel, given: str | None) -> tuple[str, Table | None]:
    """The name of the data, and their columns if they are a table. ValueError for data of another kind than those that
    the model was trained on."""
    if trained.encoding is not None:
        if given is None:
            raise ValueError(f"--data names the table to predict; the model was trained on {trained.data}")
        if given in data.names():
            raise ValueError(f"the model was trained on the table {trained.data}; give --data such a table")
        return given, trained.encoding.read(given)
    name = given or trained.data
    if Path(name).suffix:
        raise ValueError(f"the model was trained on the data set {trained.data}; give --data {trained.data}")
    if (shape := data.dataset(name).sample_shape) != trained.sample_shape:
        raise ValueError(f"the model takes samples of {trained.sample_shape}, those of {name} are {shape}")
    return name, None


def inputs(trained: TrainedModel, name: str, table: Table | None, data_dir: Path | None) -> Tensor:
    """The samples of a table, or of the test split of a data set."""
    if trained.encoding is None or table is None:
        return data.load(name, "test", data_dir)[0]
    return trained.encoding.samples(table)


def targets(trained: TrainedModel, name: str, table: Table | None, data_dir: Path | None) -> Tensor:
    """Their labels, or standardised numbers."""
    if trained.encoding is None or table is None:
        return data.load(name, "test", data_dir)[1]
    return trained.encoding.targets(table)
