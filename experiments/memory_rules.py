"""How soon nets learn MNIST, batch by batch: `python experiments/memory_rules.py run`, then `... table`.

`run` finds the learning rate of every rule on validation data (seed 0, the mean accuracy over the marks), then trains
with seeds 0 to 2 and measures on test data, in benchmarks/memory.jsonl. `table` writes docs/memory.md and trains
nothing.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from common import HERE, SEEDS, Row, fill, read, spread, table, write

import altmin
from altmin.training import fit

RESULTS = HERE / "benchmarks/memory.jsonl"
MARKS = (25, 50, 150, 250)
NETS = ("mlp-2x100", "lenet5")
RATES = (0.001, 0.002, 0.004, 0.008, 0.016)


def by_backprop(model: torch.nn.Module, lr: float) -> Any:
    return altmin.methods.create("adam", model, lr=lr)


def by_memory(model: torch.nn.Module, lr: float, **options: Any) -> Any:
    return altmin.AltMin(model, weights=altmin.CoActivationMemory(lr, **options))


RULES: dict[str, Callable[..., Any]] = {
    "Adam, backprop": by_backprop,
    "AM-Adam": lambda model, lr: altmin.AltMin(model, weights=altmin.LocalAdam(lr)),
    "memory": by_memory,
    'memory, length="adam"': lambda model, lr: by_memory(model, lr, length="adam"),
}


def train(net: str, rule: str, lr: float, seed: int, measured_on: str) -> Row:
    """One pass over the training data in batches of 200."""
    torch.manual_seed(seed)
    about = altmin.data.dataset("mnist")
    method = RULES[rule](altmin.models.create(net, about.sample_shape, about.classes), lr)
    measured = altmin.data.load("mnist", measured_on)
    samples = altmin.data.load("mnist", "train")
    history = fit(method, samples, measured, epochs=1, batch_size=200, seed=seed, eval_batches=MARKS)
    found = {str(row["batch"]): row["test_accuracy"] for row in history.batches}
    return {"net": net, "rule": rule, "lr": lr, "seed": seed, "measured_on": measured_on, "accuracy": found}


def run() -> None:
    rows: list[Row] = []
    for net in NETS:
        for rule in RULES:
            tried = [train(net, rule, lr, 0, "validation") for lr in RATES]
            rows += tried
            lr = max(tried, key=lambda row: sum(row["accuracy"].values()))["lr"]
            rows += [train(net, rule, lr, seed, "test") for seed in SEEDS]
            write(RESULTS, rows)
            print(net, rule, lr, [row["accuracy"] for row in rows[-len(SEEDS) :]], flush=True)


def text() -> str:
    """The tables, as docs/memory.md has them."""
    rows, parts = [row for row in read(RESULTS) if row["measured_on"] == "test"], []
    for net in NETS:
        lines = []
        for rule in RULES:
            runs = [row for row in rows if (row["net"], row["rule"]) == (net, rule)]
            found = [spread([row["accuracy"][str(mark)] for row in runs]) for mark in MARKS]
            lines.append([rule, f"{runs[0]['lr']:g}", *found])
        parts.append(f"{net}:\n\n" + table(["rule", "lr", *(f"{mark} batches" for mark in MARKS)], lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        torch.set_num_threads(1)
        run()
    elif sys.argv[1:] == ["table"]:
        fill(HERE / "docs/memory.md", text(), "memory")
    else:
        sys.exit("usage: python experiments/memory_rules.py run | table")
