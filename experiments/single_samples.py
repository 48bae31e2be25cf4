"""MNIST one sample at a time, each once: `python experiments/single_samples.py run`, then `... table`.

784-100-100-10, the first 10,000 training samples in their order. Each is predicted and then learnt, alone.
Gauss-Newton's start and floor and the rates of the others are chosen by progressive accuracy plus accuracy on
validation samples, with seed 0; then seeds 0 to 2 are measured on test samples. One line of
benchmarks/single-samples.jsonl for each run.
"""

import argparse
import statistics
from typing import Any

import torch
from common import HERE, Row, fill, read, table, write

import altmin
from altmin.cli import output
from altmin.training.evaluate import accuracy

RESULTS = HERE / "benchmarks/single-samples.jsonl"
DOCUMENT = HERE / "docs/streams.md"
SAMPLES, MARKS = 10_000, (1_000, 3_000, 10_000)
GRIDS: dict[str, list[dict[str, float]]] = {
    "gauss-newton": [{"start": start, "floor": floor} for start in (0.1, 0.5) for floor in (0.003, 0.06)],
    **{name: [{"lr": lr} for lr in (1e-4, 3e-4, 1e-3, 3e-3)] for name in ("adam", "am-adam")},
    "sgd": [{"lr": lr} for lr in (1e-3, 3e-3, 1e-2, 3e-2)],
}


def progressive(method: str, options: dict[str, float], seed: int, part: str) -> Row:
    """The accuracy of predictions made before learning, after each mark, and that on another part at the end."""
    x, y = (t[:SAMPLES] for t in altmin.data.load("mnist", "train"))
    torch.manual_seed(seed)
    trained = altmin.methods.create(method, altmin.models.mlp(784, (100, 100), 10), **options)
    right, marks = 0, {}
    for t in range(SAMPLES):
        with torch.no_grad():
            right += int(trained.model(x[t : t + 1]).argmax() == y[t])
        trained.step(x[t : t + 1], y[t : t + 1])
        if t + 1 in MARKS:
            marks[str(t + 1)] = right / (t + 1)
    other = accuracy(trained.model, altmin.data.load("mnist", part))
    return {"method": method, "options": options, "seed": seed, "part": part, "progressive": marks, "accuracy": other}


def run() -> None:
    rows = read(RESULTS) if RESULTS.exists() else [{"environment": output.environment(torch.device("cpu"))}]

    def made(*what: Any) -> Row:
        for row in rows:
            if (row.get("method"), row.get("options"), row.get("seed"), row.get("part")) == what:
                return row
        rows.append(progressive(*what))
        write(RESULTS, rows)
        print(rows[-1], flush=True)
        return rows[-1]

    for method, grid in GRIDS.items():
        tried = [made(method, options, 0, "validation") for options in grid]
        best = max(tried, key=lambda row: row["accuracy"] + row["progressive"][str(SAMPLES)])
        for seed in range(3):
            made(method, best["options"], seed, "test")


def fill_table() -> None:
    lines = []
    for method, grid in GRIDS.items():
        rows = [row for row in read(RESULTS) if row.get("method") == method and row["part"] == "test"]
        assert all(row["options"] in grid for row in rows)
        chosen = ", ".join(f"{name} {value:g}" for name, value in rows[0]["options"].items())
        columns = [[row["progressive"][str(mark)] for row in rows] for mark in MARKS] + [[r["accuracy"] for r in rows]]
        shown = [f"{statistics.mean(each):.4f} ± {statistics.stdev(each):.4f}" for each in columns]
        lines.append([f"`{method}`", chosen, *shown])
    heads = [f"{mark:,} samples" for mark in MARKS]
    fill(DOCUMENT, "\n" + table(["method", "chosen", *heads, "test accuracy"], lines) + "\n", "single")
    print(f"wrote {DOCUMENT.name}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    run() if parser.parse_args().command == "run" else fill_table()
