"""Runs the parts of the trial, shows and writes what came of them, and fills the table of docs/reliability.md."""

import argparse
import importlib
import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from altmin.cli.output import environment
from altmin.data.atomic import replacing

ROOT = Path(__file__).resolve().parent.parent.parent
RESULT, DOCUMENT = ROOT / "benchmarks" / "trial.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- trial:begin -->\n", "<!-- trial:end -->\n"

COUNTS = {
    "api": {"full": 10_000, "short": 300},
    "networks": {"full": 2_000, "short": 200, "nightly": 20_000},
    "commands": {"full": 500, "short": 25},
    "threads": {"full": 10, "short": 1},
    "kills": {"full": 200, "short": 3},
    "estimators": {"full": 6_000, "short": 300},
    "runners": {"full": 600, "short": 12},
}
"""Of each part the cases of a full and of a short run, and of a nightly one where that has more than a full one."""

WHAT = {
    "api": "calls of the Python API, many of them wrong",
    "networks": "networks written at random, against autograd",
    "commands": "command lines, many of them wrong",
    "threads": "models that train at once, each kind of run in its own thread",
    "kills": "runs killed at any moment, and resumed",
    "estimators": "calls of estimators and streams, many of them wrong",
    "runners": "networks in ensembles, recorded, and over two ranks, compared with one process",
}


def main(words: Sequence[str] | None = None) -> int:
    """0 if nothing failed, else 1; 2 if there is no such part."""
    parser = argparse.ArgumentParser(prog="python -m tests.trial", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(COUNTS)}; table; all if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", default="full", help="full, short, nightly, or a number of cases for each part")
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    given = parser.parse_args(words)
    if given.parts == ["table"]:
        fill(json.loads(RESULT.read_text()))
        return 0
    for part in given.parts:
        if part not in COUNTS:
            parser.error(f"there is no part {part!r}; the parts are {', '.join(COUNTS)}")
    if given.counts not in ("full", "short", "nightly") and not (given.counts.isdigit() and int(given.counts)):
        parser.error(f"--counts is full, short, nightly or a number from 1, given {given.counts!r}")
    torch.set_num_threads(1)  # tensors are tiny
    rows = []
    for part in given.parts or COUNTS:
        rows.append(run(part, given.counts, given.seed))
        print("; ".join(cells(rows[-1])), *rows[-1]["failures"], sep="\n", flush=True)
    result = {
        "seed": given.seed,
        "counts": given.counts,
        "environment": environment(torch.device("cpu")),
        "parts": rows,
    }
    if given.json:
        with replacing(given.json) as file:
            file.write((json.dumps(result, indent=2) + "\n").encode())
        print(f"wrote {given.json}")
    return int(any(row["failures"] for row in rows))


def count_of(part: str, counts: str) -> int:
    """`counts` is full, short or nightly, or a number."""
    return int(counts) if counts.isdigit() else COUNTS[part].get(counts, COUNTS[part]["full"])


def run(part: str, counts: str, seed: int) -> dict[str, Any]:
    """One part, as a row of the result."""
    count, failures, start = count_of(part, counts), list[str](), time.perf_counter()
    print(f"{part}: {count:,} {WHAT[part]} ...", file=sys.stderr, flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counters = importlib.import_module(f".{part}", __package__).trial(count, seed, failures)
    seconds = round(time.perf_counter() - start, 1)
    print(f"{part}: {len(failures)} failures in {seconds:.0f} s", file=sys.stderr, flush=True)
    return {"part": part, "cases": count, "counters": counters, "failures": failures, "seconds": seconds}


def cells(row: dict[str, Any]) -> list[str]:
    counters = ", ".join(f"{number:,} {name}" for name, number in row["counters"].items())
    return [row["part"], f"{row['cases']:,}", counters, str(len(row["failures"])), f"{row['seconds']:.0f}"]


def fill(result: dict[str, Any], document: Path = DOCUMENT) -> None:
    """Puts a result's table between the markers of a document."""
    text = document.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{document} has no lines {BEGIN.strip()} and {END.strip()} to put the table between")
    with replacing(document) as file:
        file.write((before + BEGIN + markdown(result) + END + after).encode())


def markdown(result: dict[str, Any]) -> str:
    lines = ["| part | what | cases | of these | failures | seconds |", "| --- | --- | --- | --- | --- | --- |"]
    for row in result["parts"]:
        part, *rest = cells(row)
        lines.append(f"| {' | '.join([part, WHAT[part], *rest])} |")
    where = result["environment"]
    machine = f"{where['platform']}, torch {where['torch']}, Python {where['python']}"
    return "\n".join([*lines, "", f"Seed {result['seed']}, {result['counts']} counts, on {machine}."]) + "\n"
