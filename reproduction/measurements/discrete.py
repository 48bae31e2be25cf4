"""Nets with activations that have no derivative: codes by a search, by an estimate, and with a frozen first layer.

The learning rate, 0.002 for both solvers and 0.001 for backprop, was chosen on validation data.
"""

from typing import Any

from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import words
from reproduction.run import Run
from reproduction.tables import markdown, table

NETS = {"binary-500": "784-500-500-10: sign, tanh", "staircase-500": "784-500-500-10: 2-bit staircase, tanh"}
FROZEN = "first layer frozen"


def _run(model: str, codes: str, epochs: int, **more: Any) -> Run:
    options = {"lr": 0.002, "codes": codes}
    label = codes + (f", {FROZEN}" if more.get("freeze_first") else "")
    return Run("am-adam", model, options=options, epochs=epochs, schedule="cosine", seeds=3, label=label, **more)


RUNS = [
    _run(model, codes, epochs, **more)
    for model, epochs in (("binary-500", 10), ("binary-500", 20), ("staircase-500", 6))
    for codes, more in (("straight-through", {}), ("discrete", {}), ("discrete", {"freeze_first": True}))
]
FIGURES = [Figure("discrete", "Activations without a derivative", RUNS, axes=(), minutes=15)]


@table("discrete.accuracy")
def accuracy() -> str:
    lines = []
    for run in RUNS:
        layer = "**frozen**" if run.freeze_first else "trained"
        cells = [
            NETS[run.model],
            str(run.options["codes"]),
            layer,
            words(results("discrete").values(run, epoch=-1), ".4f"),
        ]
        lines.append([*cells, str(run.epochs)])
    return markdown(["net", "codes", "first layer", "test accuracy", "epochs"], lines)
