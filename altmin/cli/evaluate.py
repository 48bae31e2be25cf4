"""`altmin evaluate`: how well a trained model does on a table, or on the test samples of a data set."""

from rich.table import Table
from torch import nn

from altmin.cli import options, output, predict, tables
from altmin.core.labels import by_label
from altmin.training import evaluate as evaluation
from altmin.training.sources import Stored


def evaluate(
    file: predict.ModelFile,
    data: predict.Data = None,
    model: predict.Own = None,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    json_file: options.Json = None,
) -> None:
    """Measure a trained model: accuracy and log loss of classes, R^2 and root mean squared error of numbers."""
    output.check_writable(json_file, read=(file, data))
    place = options.prepare(device, None)
    network, about, rows = predict.load(file, data, model, place, data_dir)
    if about["table"] is None:
        wanted = {"accuracy": "accuracy", "log_loss": "loss"}
        metrics = evaluation.choose(wanted, rows[1], by_label(nn.CrossEntropyLoss()))
        scores, count = evaluation.measure(network, Stored(*rows), metrics), len(rows[0])
    else:
        from altmin.sklearn import table_model

        rows = tables.with_target(rows, about["table"]["target"])
        found = table_model.predict(network, about["table"], rows)
        scores, count = table_model.scores(found, rows, about["table"]), len(rows)
    name = data or about["data"]
    shown = Table("", f"{about['model']} on {name}, {count:,} samples", header_style="bold")
    for measure, value in scores.items():
        shown.add_row(measure.replace("_", " "), f"{value:.5g}")
    output.console().print(shown)
    result = {"data": name, "model": about["model"], "trained_on": about["data"], "samples": count, **scores}
    output.write_json(json_file, {**result, "environment": output.environment(place)})
