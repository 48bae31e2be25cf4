"""The jobs of examples/, each beside its plain version: score and time of both."""

import importlib
import statistics
import sys
import time
import warnings
from typing import NamedTuple

from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import Row, Setting, words
from reproduction.tables import ROOT, markdown, table


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


def run(case: Case, seed: int, setting: Setting) -> Row:
    """Both versions, after a first run of both that is not counted: imports and caches are not what is compared."""
    sys.path.insert(0, str(ROOT / "examples"))
    name, row = case["job"], dict[str, Row]()
    pair = {"altmin": importlib.import_module(name), "plain": importlib.import_module(f"{name}_plain")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, module in (*pair.items(), *pair.items()):
            start = time.perf_counter()
            score = module.main(seed)
            row[kind] = {"score": float(score), "seconds": time.perf_counter() - start}
    return row


CASES = {name: Case(run, {"job": name}, seeds=5) for name in JOBS}
FIGURES = [Figure("examples", "Examples beside their plain versions", list(CASES.values()), axes=(), minutes=10)]


@table("examples")
def examples() -> str:
    lines = []
    for name, job in JOBS.items():
        rows = results("examples").all(CASES[name])
        ours, plain = ([row[kind]["score"] for row in rows] for kind in ("altmin", "plain"))
        seconds = [f"{statistics.median(row[kind]['seconds'] for row in rows):.1f}" for kind in ("altmin", "plain")]
        line = [f"[{job.title}](../examples/{name}.py)", job.measure, words(ours), words(plain), verdict(ours, plain)]
        lines.append([*line, *seconds, f"[{job.plain}](../examples/{name}_plain.py)"])
    head = ["job", "measure", "altmin", "plain", "altmin is", "altmin, seconds", "plain, seconds", "made with"]
    return markdown(head, lines)


def verdict(ours: list[float], plain: list[float]) -> str:
    """ "ahead" or "behind" if the mean difference of pairs is more than twice its standard error, else "level"."""
    differences = [a - b for a, b in zip(ours, plain, strict=True)]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    return "level" if abs(mean) <= 2 * error else "ahead" if mean > 0 else "behind"
