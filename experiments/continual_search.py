"""Options of the figure `continual`, tried on validation data; reproduction/results/search/continual.jsonl has all.

python experiments/continual_search.py [--jobs 2]     # what the file has already is not tried again
python experiments/continual_search.py best           # of each learner the options with the best mean accuracy
"""

import json
import sys
from itertools import product
from statistics import mean
from typing import Any

import torch
from common import HERE, Row, jobs_given, parallel, read, write

import altmin
from reproduction.continual import Stream

HISTORY = HERE / "reproduction/results/search/continual.jsonl"
SEEDS = {"split": (0, 1), "permuted": (0,)}
LIMIT = {"split": None, "permuted": 10_000}
"""On permuted inputs the first 10,000 samples: ten passes over all of them take long."""


def grid(**values: list[Any]) -> list[Row]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


SMALL = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]
SPLIT: dict[tuple[str, bool], list[Row]] = {
    ("am-adam", False): grid(lr=SMALL),
    ("adam", False): grid(lr=SMALL),
    ("adam", True): grid(lr=SMALL),
    ("sgd", False): grid(lr=[1e-4, 1e-3, 1e-2, 1e-1], momentum=[0.0, 0.9]),
    ("falling-sgd", False): grid(lr=[0.03, 0.1, 0.3], batches=[1.0, 3.0, 10.0, 30.0]),
    ("replay", False): grid(lr=[3e-4, 1e-3, 3e-3, 1e-2]),
    ("ewc", False): grid(strength=[1e1, 1e2, 1e3, 1e4, 1e5], lr=[1e-4, 1e-3]) + grid(strength=[1e3, 1e4], lr=[3e-5]),
    ("slda", False): grid(shrinkage=[1e-4, 1e-3, 1e-2, 1e-1, 0.3, 0.5]),
    ("am-mem-fitted", False): grid(
        forget=[1.0], lr=[1e-5, 1e-4, 1e-3], rate=[10.0, 30.0, 100.0, 300.0], damping=[30.0], steps=[None, 1]
    )
    + grid(forget=[1.0], lr=[1e-4], rate=[30.0, 100.0], damping=[3.0, 10.0, 100.0], steps=[None])
    + grid(forget=[0.99, 0.9], lr=[1e-4], rate=[30.0, 300.0], damping=[30.0], steps=[None]),
    ("am-mem-printed", False): grid(lr=[3e-4, 1e-3, 1e-2, 0.1], code_lr=[0.3, 3.0], mu=[0.003, 0.03]),
}
PERMUTED: dict[tuple[str, bool], list[Row]] = {  # a run takes five times as long, so fewer are tried
    ("am-adam", False): grid(lr=[1e-4, 3e-4, 1e-3]),
    ("adam", False): grid(lr=[1e-4, 3e-4, 1e-3]),
    ("sgd", False): grid(lr=[1e-2, 1e-1, 0.3], momentum=[0.0]) + grid(lr=[1e-3, 1e-2], momentum=[0.9]),
    ("am-mem-fitted", False): grid(forget=[1.0], lr=[1e-4], rate=[30.0, 100.0, 300.0], damping=[10.0], steps=[None])
    + grid(forget=[1.0], lr=[1e-4], rate=[100.0], damping=[30.0], steps=[None, 1])
    + grid(forget=[0.9], lr=[1e-4], rate=[30.0, 300.0], damping=[30.0], steps=[None]),
    ("am-mem-printed", False): grid(lr=[1e-3, 1e-2, 0.1], code_lr=[0.3, 3.0], mu=[0.01]),
    ("replay", False): grid(lr=[3e-4, 1e-3, 3e-3, 1e-2]),
    ("adam", True): grid(lr=[3e-4, 1e-3, 3e-3]),
    ("falling-sgd", False): grid(lr=[0.1, 0.3], batches=[10.0, 100.0, 300.0]),
    ("slda", False): grid(shrinkage=[1e-3, 1e-2, 1e-1]),
    ("ewc", False): grid(strength=[1.0, 3.0, 1e1, 1e2, 1e3, 1e4], lr=[1e-3]) + grid(strength=[1e3], lr=[1e-4]),
}
GRIDS = {"split": SPLIT, "permuted": PERMUTED}
"""What is tried, by learner and whether hidden layers are frozen."""


class Here:
    """Data on this machine's processor."""

    device = torch.device("cpu")

    def samples(self, name: str, part: str, limit: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = altmin.data.load(name, part)
        return x[:limit], y[:limit]


def trial(learner: str, frozen: bool, sequence: str, options: Row, seed: int) -> Row:
    torch.set_num_threads(1)
    stream = Stream(
        *(learner, sequence, options, "linear" if learner == "slda" else "mlp-2x100"),
        freeze_hidden=frozen,
        limit=LIMIT[sequence],
        part="validation",
    )
    (row,) = stream.make([seed], Here(), lambda *_: None)
    about = {"learner": learner, "freeze_hidden": frozen, "sequence": sequence, "limit": LIMIT[sequence]}
    measured = {name: row.get(name) for name in ("average_accuracy", "forgetting", "seconds", "diverged")}
    return {**about, "options": options, "seed": seed, "evaluated_on": "validation", **measured}


def search(jobs: int) -> None:
    rows = read(HISTORY) if HISTORY.exists() else []
    HISTORY.parent.mkdir(parents=True, exist_ok=True)
    names = ("learner", "freeze_hidden", "sequence", "options", "seed")
    made = {json.dumps([row[name] for name in names]) for row in rows}
    every = [
        (*which, sequence, options, seed)
        for sequence in SEEDS
        for which, tried in GRIDS[sequence].items()
        for options, seed in product(tried, SEEDS[sequence])
    ]
    for row in parallel(trial, [one for one in every if json.dumps(one) not in made], jobs):
        rows.append(row)
        write(HISTORY, rows)


def best() -> None:
    found: dict[str, dict[str, list[Row]]] = {}
    for row in read(HISTORY):
        kind = f"{row['sequence']:9}{row['learner']}{', hidden layers frozen' * row['freeze_hidden']}"
        kind += ", memory fades" if row["options"].get("forget", 1) < 1 else ""
        found.setdefault(kind, {}).setdefault(json.dumps(row["options"]), []).append(row)
    for kind, tried in found.items():
        score = {options: mean(row["average_accuracy"] or 0.0 for row in rows) for options, rows in tried.items()}
        chosen = max(score, key=lambda options: score[options])
        lost = mean(row["forgetting"] or 0.0 for row in tried[chosen])
        print(f"{kind:42} {score[chosen]:.3f}, forgetting {lost:.3f}, of {len(tried)} settings: {chosen}")


if __name__ == "__main__":
    best() if "best" in sys.argv else search(jobs_given(sys.argv))
