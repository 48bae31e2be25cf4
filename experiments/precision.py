"""Precision in docs/speed.md: `python experiments/precision.py accuracy --device cuda`, then `... table`.

`accuracy` trains am-adam on MNIST for one epoch in every precision that the device has, seeds 0 to 2, the same first
weights and order of samples in each, and reports on test data in benchmarks/precision-DEVICE.jsonl: a minute on a GPU
or a CPU. `--models mlp-2x100` is for a part of it. `table` writes what there is into the document and trains nothing.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from common import HERE, SEEDS, Row, fill, read, spread, table, write

import altmin
from altmin.cli import output
from altmin.runners.precision import available, using
from altmin.training import fit

DOCUMENT = HERE / "docs/speed.md"
RATES = {"mlp-2x100": 0.004, "mlp-2x500": 0.001, "lenet5": 0.001}
TARGET = 0.003
"""How far from float32 the mean accuracy may be."""


def results(device: str) -> Path:
    return HERE / f"benchmarks/precision-{device}.jsonl"


def train(model: str, precision: str, seed: int, device: torch.device) -> Row:
    samples, measured = (tuple(t.to(device) for t in altmin.data.load("mnist", part)) for part in ("train", "test"))
    torch.manual_seed(seed)
    net = altmin.models.create(model, (1, 28, 28), 10).to(device)
    method = altmin.methods.create("am-adam", net, lr=RATES[model])
    with using(precision):
        history = fit(method, samples, measured, epochs=1, batch_size=200, seed=seed)
    last = history.epochs[-1]
    return {
        **{"data": "mnist", "model": model, "method": "am-adam", "options": {"lr": RATES[model]}, "epochs": 1},
        **{"batch_size": 200, "precision": precision, "seed": seed},
        **{"accuracy": last["test_accuracy"], "train_loss": last["train_loss"]},
    }


def accuracy(device: torch.device, models: list[str]) -> None:
    torch.set_num_threads(1)
    rows: list[Row] = [{"environment": output.environment(device)}]
    for model in models:
        for precision in available(device):
            found = [train(model, precision, seed, device) for seed in SEEDS]
            rows += found
            print(json.dumps(found[0]), [row["accuracy"] for row in found], flush=True)
    write(results(device.type), rows)


def lines(device: str) -> list[list[str]]:
    """A row for every net and precision: how far the mean is from that of float32, and whether within the target."""
    environment, *runs = read(results(device))
    where = environment["environment"][{"cuda": "gpu", "cpu": "cpu"}[device]]
    found = []
    for model in dict.fromkeys(run["model"] for run in runs):
        of = {
            name: [run["accuracy"] for run in runs if (run["model"], run["precision"]) == (model, name)]
            for name in dict.fromkeys(run["precision"] for run in runs)
        }
        for name, accuracies in of.items():
            off = statistics.mean(accuracies) - statistics.mean(of["float32"])
            judged = ["", ""] if name == "float32" else [f"{off:+.4f}", "yes" if abs(off) <= TARGET else "**no**"]
            found.append([where, model, name, spread(accuracies), *judged])
    return found


def fill_table() -> None:
    rows = [line for device in ("cuda", "cpu") if results(device).exists() for line in lines(device)]
    if not rows:
        sys.exit("there are no results yet; run `python experiments/precision.py accuracy --device cuda` first")
    head = ["processor", "net", "precision", "accuracy", "off float32", f"within {TARGET}"]
    fill(DOCUMENT, table(head, rows), "precision")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "table"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--models", default=",".join(RATES), help="some of the nets, separated by commas")
    given = parser.parse_args()
    if given.what == "table":
        fill_table()
        return
    models = given.models.split(",")
    if strange := set(models) - set(RATES):
        parser.error(f"--models takes some of {', '.join(RATES)}, given {', '.join(sorted(strange))}")
    accuracy(torch.device(given.device), models)


if __name__ == "__main__":
    main()
