"""Figures and results made up for the tests of the page: two nets, three methods, one of them with a name that is HTML,
and a figure that has not been run."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from reproduction import Claim, Figure, Finding, Mark, Results, Run, statement
from reproduction.results import deviation, words

NASTY = "</script><b>sgd</b> & co"
ADAM, SGD, LARGE = (
    Run("adam", "mlp-1x4", seeds=3, epochs=2, eval_batches=(1, 2), options={"lr": 0.01}),
    Run("sgd", "mlp-1x4", seeds=2, epochs=2, label=NASTY),
    Run("adam", "mlp-2x4", data="higgs", seeds=2, epochs=2, title="HIGGS"),
)
PER_EPOCH = 4
"""Batches, of 800 rows."""


def row(run: Run, seed: int, curve: Sequence[float], batches: Sequence[float] = (), rows: int = 800) -> dict[str, Any]:
    """A result: the accuracy after each epoch, of 1 + seed / 2 seconds, and after each of the first batches."""
    return {
        "config": run.config(),
        "environment": {"torch": "2.13.0", "gpu": None, "cpu": "<i>fast</i>"},
        "data": "0123456789abcdef",
        "rows": rows,
        "seed": seed,
        "batches": [{"batch": n, "test_accuracy": value} for n, value in enumerate(batches, 1)],
        "epochs": [
            {"epoch": n, "train_loss": 1.0, "test_accuracy": value, "seconds": 1 + seed / 2}
            for n, value in enumerate(curve, 1)
        ],
    }


ROWS = [
    row(ADAM, 0, [0.5, 0.6], [0.1, 0.2]),
    row(ADAM, 1, [0.7, 0.8], [0.3, 0.1]),
    row(ADAM, 2, [0.6, 0.9], [0.2, 0.3]),
    row(SGD, 0, [0.4, 0.5]),
    row(SGD, 1, [0.3, 0.7]),
    row(LARGE, 0, [0.61, 0.62]),
    row(LARGE, 1, [0.63, 0.66]),
]


@statement("it reaches 0.7", "the mean at the end is above 0.7")
def learns(results: Results) -> Finding:
    values = results.values(ADAM, epoch=-1)
    assert mean(values) > 0.7
    return Finding(words(values), "reproduced", spread=deviation(values))


@statement("a half of it <b>differs</b>", "the mean at the end is above 0.7 & so on")
def differs(results: Results) -> Finding:
    values = results.values(SGD, epoch=-1)
    return Finding(words(values), "differs", "0.6 < 0.7 & <u>so on</u>", deviation(values))


@statement("its proof is right", "it has no error")
def refuted(results: Results) -> Finding:
    return Finding("an error in line 3", "refuted", "of line 3")


@statement("it learns fast", "after an epoch it is above 0.5")
def exceeded(results: Results) -> Finding:
    values = results.values(LARGE, epoch=1)
    return Finding(words(values), "exceeded", "the printed one is below", deviation(values))


SMALL = Figure(
    "small",
    "a small <figure>",
    [ADAM, SGD, LARGE],
    ("batches", "epochs", "seconds"),
    1.5,
    claims=[
        Claim("C10", "it <i>fails</i>", "0.9", [learns, differs]),
        Claim("C2", "it learns", "about 0.8", [learns]),
        Claim("C3", "it is right", "a <s>proof</s>", [learns, refuted]),
        Claim("C4", "it learns fast", "curves", [exceeded]),
    ],
    marks=[Mark("HIGGS", 8, 0.98, "AM-Adam 0.98")],
    searches=["a search"],  # type: ignore[list-item]
)


class Rated(Run):
    """A run that is drawn as accuracies are."""

    y_scale = "logit"


DEEP = [Rated("adam", f"mlp-{n}x4", at=n, seeds=2 if n == 2 else 1, title="deep") for n in (2, 8, 64)]
DEPTH = Figure("depth", "accuracy by depth", DEEP, ("layers",), 3, log="x", measure="accuracy at the end")
DEPTH_ROWS = [row(run, 0, [0.1 * n]) for n, run in enumerate(DEEP, 1)] + [row(DEEP[0], 1, [0.3])]


@statement("it runs", "it has run")
def missing(results: Results) -> Finding:
    raise KeyError("not run")


LATER = Figure(
    "later", "one not run", [Run("adam", "mlp-3x4")], ("epochs",), 2, claims=[Claim("C1", "t", "p", [missing])]
)


def folders(root: Path) -> tuple[Path, Path]:
    """The three figures declared in a folder, and the results of two in another."""
    figures, results = root / "figures", root / "results"
    figures.mkdir()
    results.mkdir()
    for name in ("SMALL", "LATER", "DEPTH"):
        (figures / f"{name.lower()}.py").write_text(f"from report_cases import {name} as FIGURE\n")
    for name, rows in (("small", ROWS), ("depth", DEPTH_ROWS)):
        (results / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return figures, results
