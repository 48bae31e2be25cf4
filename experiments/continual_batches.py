"""Split MNIST in mini-batches of other sizes, for the learners of docs/continual.md with the options chosen for 200.

python experiments/continual_batches.py [--jobs 2]     # what benchmarks/continual-batches.jsonl has is not run again
python experiments/continual_batches.py table          # fills the table in docs/continual.md
"""

import statistics
import sys
from itertools import product

import torch
from common import HERE, SEEDS, Row, fill, jobs_given, parallel, read, table, write
from continual_search import Here

from altmin.cli import output
from reproduction.continual import Stream
from reproduction.figures.continual import KEPT, LEARNERS, OUTPUT

RESULTS = HERE / "benchmarks/continual-batches.jsonl"
SIZES = (20, 50, 200, 1000)
SCALED = f"{KEPT}, lr in proportion"
NAMES = (KEPT, SCALED, OUTPUT, "Adam", "SGD", "replay")


def run(name: str, size: int, seed: int) -> Row:
    torch.set_num_threads(1)
    learner, options, _ = LEARNERS[KEPT if name == SCALED else name]
    if name == SCALED:
        options = {**options, "lr": options["lr"] * size / 200}
    stream = Stream(learner, "split", options, batch_size=size, label=name)
    (row,) = stream.make([seed], Here(), lambda *_: None)
    measured = {key: row.get(key) for key in ("average_accuracy", "forgetting", "seconds", "diverged")}
    environment = output.environment(torch.device("cpu")) | {"threads": 1}
    about = {"learner": name, "batch_size": size, "options": options, "seed": seed, "evaluated_on": "test"}
    return {**about, **measured, "environment": environment}


def measure(jobs: int) -> None:
    rows = read(RESULTS) if RESULTS.exists() else []
    made = {(row["learner"], row["batch_size"], row["seed"]) for row in rows}
    wanted = [each for each in product(NAMES, SIZES, SEEDS) if each not in made]
    for row in parallel(run, wanted, jobs):
        print({key: row[key] for key in ("learner", "batch_size", "seed", "average_accuracy", "seconds")}, flush=True)
        rows.append(row)
        write(RESULTS, rows)


def text() -> str:
    rows = read(RESULTS)
    return table(
        ["learner", *(f"batches of {size:,}" for size in SIZES)],
        [
            [
                name,
                *(
                    _cell([row for row in rows if (row["learner"], row["batch_size"]) == (name, size)])
                    for size in SIZES
                ),
            ]
            for name in NAMES
        ],
    )


def _cell(rows: list[Row]) -> str:
    values = [row["average_accuracy"] or 0.0 for row in rows]
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" if values else ""


if __name__ == "__main__":
    fill(HERE / "docs/continual.md", text(), "batches") if "table" in sys.argv else measure(jobs_given(sys.argv))
