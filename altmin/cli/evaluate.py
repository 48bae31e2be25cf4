"""`altmin evaluate`: scores of a trained model on a table, or on the test samples of a data set."""

from dataclasses import dataclass

import torch.nn.functional as F

from altmin.cli import options, output, predict, tables


@dataclass(frozen=True, kw_only=True)
class Evaluate(predict.Trained):
    json_file: options.Json = None


@options.command(Evaluate)
def evaluate(args: Evaluate) -> None:
    """Measure a trained model: accuracy and log loss of classes, R^2 and root mean squared error of numbers."""
    output.check_writable(args.json_file, read=(args.file, args.data))
    network, about, rows = args.load()
    if about["table"] is None:
        outputs, y = predict.outputs_of(network, rows[0]), rows[1]
        right, log_loss = outputs.argmax(-1) == y, F.cross_entropy(outputs.flatten(0, -2), y.flatten())
        scores, count = {"accuracy": float(right.double().mean()), "log_loss": float(log_loss)}, len(y)
    else:
        from altmin.sklearn import table_model

        rows = tables.with_target(rows, about["table"]["target"])
        scores = table_model.scores(table_model.predict(network, about["table"], rows), rows, about["table"])
        count = len(rows)
    name, device = args.data or about["data"], next(network.parameters()).device
    shown = {measure.replace("_", " "): f"{value:.5g}" for measure, value in scores.items()}
    output.show([{"": f"{about['model']} on {name}, {count:,} samples", **shown}])
    result = {"data": name, "model": about["model"], "trained_on": about["data"], "samples": count, **scores}
    output.write_json(args.json_file, {**result, "environment": output.environment(device)})
