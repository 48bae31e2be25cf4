"""`altmin evaluate`: how well a trained model does on a table, or on the test samples of a data set."""

from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table
from torch import nn

from altmin.cli import options, output, own_data, saved
from altmin.core.labels import by_label
from altmin.data.columns import Columns
from altmin.data.tables import with_target
from altmin.training import evaluate as evaluation
from altmin.training.sources import Stored

Target = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column with the true values; else that of training.")
]


def evaluate(
    model_file: saved.ModelFile,
    data: saved.Data = None,
    target: Target = None,
    model: saved.Own = None,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    json_file: options.Json = None,
) -> None:
    """Measure a trained model: accuracy and log loss of classes, R^2 and root mean squared error of numbers."""
    output.check_writable(json_file)
    trained, place = saved.opened(model_file, model, device)
    if target is not None:
        if trained.encoding is None:
            raise ValueError(f"--target is for tables, and the model was trained on {trained.data}; leave it out")
        encoding = trained.encoding
        if isinstance(encoding.inputs, Columns) and target in encoding.inputs.names:
            raise ValueError(f"--target {target} is an input of the model, which predicts {encoding.target_name!r}")
        trained = replace(trained, encoding=replace(encoding, target_name=target))
    name, table = saved.table_of(trained, data)
    if trained.encoding is not None and table is not None:
        table = with_target(table, trained.encoding.target_name)
    x, y = (f(trained, name, table, data_dir) for f in (saved.inputs, saved.targets))
    loss = by_label(nn.CrossEntropyLoss())
    wanted = own_data.metrics(trained.target) or {"accuracy": "accuracy", "log_loss": "loss"}
    found = evaluation.measure(trained.network, Stored(x, y), evaluation.choose(wanted, y, loss))
    result = {
        **{"data": name, "model": trained.model, "trained_on": trained.data, "samples": len(x)},
        **found,
        "environment": output.environment(place),
    }
    shown = Table("", f"{trained.model} on {name}, {len(x):,} samples", header_style="bold")
    for measure, value in found.items():
        shown.add_row(LABELS[measure], f"{value:.4f}" if measure != "rmse" else f"{value:.5g}")
    output.console().print(shown)
    output.write_json(json_file, result)


LABELS = {"accuracy": "accuracy", "log_loss": "log loss", "r2": "R²", "rmse": "root mean squared error"}
