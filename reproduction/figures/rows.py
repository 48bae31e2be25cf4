"""Sequences of 28 rows of MNIST, read from the last state or from all: how far back errors have to travel."""

from typing import Any

from reproduction import Entry, Figure, runs_of
from reproduction.figures._families import TRUNCATED, family

RATES, GRID = {"lr": (0.002, 0.005, 0.01)}, {"together": 3, "run": {"epochs": 2}}
EXACT = [Entry(name, {"lr": 0.005}, RATES, search=GRID) for name in ("am-adam", "adam")]
PARALLEL = Entry("am-adam", {"lr": 0.005, "codes": "parallel"}, RATES, {"label": TRUNCATED}, GRID)
SAME: dict[str, Any] = {"data": "mnist-rows", "epochs": 5, "seeds": 3}
ELMAN, FIRST = runs_of("rows", [*EXACT, PARALLEL], ["elman-15", "elman-50"], **SAME)
GATED, SECOND = runs_of("rows", EXACT, ["gru-1x64", "lstm-1x64", "mingru-2x64"], **SAME)

FIGURE = Figure(
    name="rows",
    title="MNIST row by row: Elman nets and gated ones",
    runs=[*ELMAN.values(), *GATED.values()],
    searches=[*FIRST, *SECOND],
    family=family,
    bottom=0.7,
)
