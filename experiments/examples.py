"""The jobs of examples/, each beside its plain version: score and time of both.

python experiments/examples.py [--jobs 1]     # what benchmarks/examples.jsonl has is not run again
python experiments/examples.py table          # fills the table in docs/examples.md
"""

import importlib
import statistics
import sys
import time
import warnings
from itertools import product
from typing import NamedTuple

import torch
from common import HERE, Row, fill, jobs_given, parallel, read, table, write

from altmin.cli import output

FOLDER = HERE / "examples"
RESULTS = HERE / "benchmarks/examples.jsonl"
SEEDS = range(5)


class Job(NamedTuple):
    title: str
    measure: str
    plain: str
    """What the plain version is made with."""


JOBS = {
    "table_search": Job("table with categories and missing values, grid search", "accuracy", "scikit-learn"),
    "regression": Job("regression with targets of 10,000 and more", "R²", "scikit-learn"),
    "cnn": Job("CNN, DataLoader, scheduler, Ctrl-C and resume", "accuracy", "PyTorch"),
    "transformer": Job("transformer with a padding mask", "accuracy", "PyTorch"),
    "tied": Job("text model with tied embeddings", "accuracy", "PyTorch"),
    "lstm": Job("LSTM", "accuracy", "PyTorch"),
    "two_towers": Job("two-tower model", "accuracy", "PyTorch"),
    "drift": Job("stream with drift", "accuracy", "scikit-learn"),
    "continual_cnn": Job("continual CNN", "accuracy", "PyTorch, replay"),
    "own_parts": Job("own rule, solver and method", "accuracy", "PyTorch"),
    "csv_file": Job("own CSV file on the command line", "accuracy", "scikit-learn"),
    "hugging_face": Job("BERT in Hugging Face's Trainer", "accuracy", "Trainer"),
}
"""By the name of their file, which with `_plain` is the plain version's. Both have `main(seed)`, the score."""


def run(name: str, seed: int) -> Row:
    """Both versions, after a first run of both that is not counted: imports and caches are not what is compared."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(FOLDER))
    warnings.simplefilter("ignore")
    row: Row = {"job": name, "seed": seed}
    pair = {"altmin": importlib.import_module(name), "plain": importlib.import_module(f"{name}_plain")}
    for kind, module in (*pair.items(), *pair.items()):
        start = time.perf_counter()
        score = module.main(seed)
        row[kind] = {"score": float(score), "seconds": time.perf_counter() - start}
    return {**row, "environment": output.environment(torch.device("cpu")) | {"threads": 1}}


def measure(jobs: int) -> None:
    rows = read(RESULTS) if RESULTS.exists() else []
    made = {(row["job"], row["seed"]) for row in rows}
    for row in parallel(run, [each for each in product(JOBS, SEEDS) if each not in made], jobs):
        print({key: row[key] for key in ("job", "seed", "altmin", "plain")}, flush=True)
        rows.append(row)
        write(RESULTS, rows)


def text() -> str:
    rows = read(RESULTS)
    return table(
        ["job", "measure", "altmin", "plain", "altmin is", "altmin, seconds", "plain, seconds", "made with"],
        [_line(name, job, [row for row in rows if row["job"] == name]) for name, job in JOBS.items()],
    )


def verdict(ours: list[float], plain: list[float]) -> str:
    """ "ahead" or "behind" if the mean difference of pairs is more than twice its standard error, else "level"."""
    differences = [a - b for a, b in zip(ours, plain, strict=True)]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    return "level" if abs(mean) <= 2 * error else "ahead" if mean > 0 else "behind"


def _line(name: str, job: Job, rows: list[Row]) -> list[str]:
    scores = {kind: [row[kind]["score"] for row in rows] for kind in ("altmin", "plain")}
    seconds = [f"{statistics.median(row[kind]['seconds'] for row in rows):.1f}" for kind in scores]
    cells = [f"{statistics.mean(found):.3f} ± {statistics.stdev(found):.3f}" for found in scores.values()]
    plain = f"[{job.plain}](../examples/{name}_plain.py)"
    return [
        f"[{job.title}](../examples/{name}.py)",
        job.measure,
        *cells,
        verdict(scores["altmin"], scores["plain"]),
        *seconds,
        plain,
    ]


if __name__ == "__main__":
    fill(HERE / "docs/examples.md", text(), "examples") if "table" in sys.argv else measure(jobs_given(sys.argv))
