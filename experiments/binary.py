"""The figures of docs/discrete.md on deep binary nets: `python experiments/binary.py accuracy`, `... table`.

`accuracy` searches the learning rate of every net and method on validation data (seed 0), then trains with the best one
on seeds 0 to 2 and measures on test data, in benchmarks/binary.jsonl; runs that the file has are kept, so that it can
be stopped and go on. --nets NAMES and --methods NAMES take some of them, joined by ";". Where the weights have few
bits, the trained net is exported as integers and compared on all test samples. `table` writes into docs/ and trains
nothing.
"""

import json
import sys
import time
import warnings
from typing import Any

import torch
from common import HERE, SEEDS, Row, fill, read, spread, table, write

import altmin
from altmin.cli import output
from altmin.layers import Committed
from altmin.training import fit
from altmin.training.commitment import Commitment

ACCURACY, DOCUMENT = HERE / "benchmarks/binary.jsonl", HERE / "docs/discrete.md"
NETS = {
    "mnist-2": ("MNIST, 2 sign layers of 500", "mnist", 10),
    "mnist-4": ("MNIST, 4 sign layers of 500", "mnist", 10),
    "mnist-8": ("MNIST, 8 sign layers of 500", "mnist", 10),
    "mnist-4-bits": ("MNIST, 4 sign layers of 500, binary weights", "mnist", 10),
    "fashion-cnn": ("Fashion-MNIST, convolutional (8, 16, 16, 64), binary weights", "fashion-mnist", 10),
}
"""Words, data and epochs."""
METHODS = {
    "commitment": "commitment (am-adam)",
    "commitment, plain": "commitment (am-adam), no batch norm or dropout",
    "straight-through": "straight-through",
    "straight-through, plain": "straight-through, no batch norm or dropout",
    "straight-through, codes": "straight-through codes (am-adam)",
    "frozen": "straight-through, first layer **frozen**",
}
"""All but the plain ones have batch norm, and dropout where layers are fully connected."""
RATES = (0.0003, 0.001, 0.003, 0.01)
DROPOUT = 0.1


def model_of(net: str, method: str) -> torch.nn.Module:
    activation: Any = Committed if method.startswith("commitment") else altmin.Sign
    if net == "fashion-cnn":
        return altmin.models.binary_cnn(width=8, activation=activation)
    hidden, bits = [500] * int(net.split("-")[1]), 1 if net.endswith("bits") else None
    more: Row = {} if method.endswith("plain") else {"batch_norm": True, "dropout": DROPOUT}
    return altmin.models.binary_mlp(hidden=hidden, activations=activation, bits=bits, **more)


def train(net: str, method: str, lr: float, seed: int, measured_on: str) -> Row:
    """One run with a rate that falls to zero along a cosine."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _, data, epochs = NETS[net]
    samples, (x, y) = altmin.data.load(data, "train"), altmin.data.load(data, measured_on)
    torch.manual_seed(seed)
    model = model_of(net, method)
    if method == "frozen":
        altmin.models.freeze_first(model)
    am = method.startswith("commitment") or method == "straight-through, codes"
    codes = {"codes": altmin.StraightThroughCodes()} if method == "straight-through, codes" else {}
    made = altmin.methods.create("am-adam" if am else "straight-through", model, lr=lr, **codes)
    callbacks = [Commitment()] if method.startswith("commitment") else []
    start = time.perf_counter()
    history = fit(
        made, samples, (x, y), epochs=epochs, batch_size=200, seed=seed, schedule="cosine", callbacks=callbacks
    )
    curve = [row["test_accuracy"] for row in history.epochs]
    row: Row = {"net": net, "method": method, "lr": lr, "seed": seed, "measured_on": measured_on, "epochs": epochs}
    row |= {"callbacks": [repr(each) for each in callbacks], "rows": len(samples[0]), "schedule": "cosine"}
    row |= {"curve": curve, "accuracy": curve[-1], "seconds": round(time.perf_counter() - start)}
    return row


def accuracy(nets: list[str], methods: list[str]) -> None:
    if not ACCURACY.exists():
        write(ACCURACY, [{"environment": output.environment(torch.device("cpu"))}])

    def result(*key: Any) -> Row:
        names = ("net", "method", "lr", "seed", "measured_on")
        there = [row for row in read(ACCURACY)[1:] if tuple(row[name] for name in names) == key]
        if not there:
            there = [train(*key)]
            with ACCURACY.open("a") as file:  # other processes may add rows at the same time
                file.write(json.dumps(there[0]) + "\n")
            print(json.dumps(there[0]), flush=True)
        return there[0]

    for net in nets:
        for method in methods:
            if method.endswith("plain") and net == "fashion-cnn":
                continue
            lr = best_rate([result(net, method, lr, 0, "validation") for lr in RATES])
            for seed in SEEDS:
                result(net, method, lr, seed, "test")


def best_rate(rows: list[Row]) -> float:
    """The learning rate with the best accuracy on validation data."""
    return float(max(rows, key=lambda row: float(row["accuracy"]))["lr"])


def text() -> str:
    rows, lines = read(ACCURACY)[1:], []
    for net, (words, _, epochs) in NETS.items():
        for method, name in METHODS.items():
            mine = [r for r in rows if (r["net"], r["method"]) == (net, method)]
            tried = [r for r in mine if r["measured_on"] == "validation"]
            if not tried:
                continue
            lr = best_rate(tried)
            found = [r for r in mine if r["measured_on"] == "test" and r["lr"] == lr]
            if len(found) < len(SEEDS):
                continue
            checks = [r["integers"] for r in found if "integers" in r]
            equal = sum(c["samples"] - c["differing"] for c in checks)
            integers = f"{equal:,} of {sum(c['samples'] for c in checks):,}" if checks else ""
            rates = f"{lr:g} of {len(tried)}"
            given = [words, name, rates, spread([r["accuracy"] for r in found]), str(epochs), integers]
            lines.append(given)
    return table(
        ["net", "method", "best rate of those tried", "test accuracy", "epochs", "integers predict the same"], lines
    )


def given(option: str, default: Any) -> list[str]:
    """The names after an option of the command line."""
    return sys.argv[sys.argv.index(option) + 1].split(";") if option in sys.argv else list(default)


if __name__ == "__main__":
    if sys.argv[1] == "table":
        fill(DOCUMENT, text(), "binary")
    else:
        accuracy(given("--nets", NETS), given("--methods", METHODS))
