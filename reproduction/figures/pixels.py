"""Sequences of 784 steps: MNIST pixel by pixel, in the order of the image and in a random one."""

from reproduction import Entry, Figure, runs_of
from reproduction.figures._families import family

RATES, GRID = {"lr": (0.002, 0.005, 0.01)}, {"together": 3, "run": {"epochs": 2}}
ENTRIES = [Entry(name, {"lr": 0.005}, RATES, search=GRID) for name in ("am-adam", "adam")]
MADE = [
    runs_of("pixels", ENTRIES, ["gru-1x64", "mingru-2x64"], data=data, epochs=5, seeds=3)
    for data in ("mnist-sequential", "mnist-permuted")
]

FIGURE = Figure(
    name="pixels",
    title="MNIST pixel by pixel, 784 steps",
    runs=[run for runs, _ in MADE for run in runs.values()],
    searches=[search for _, searches in MADE for search in searches],
    family=family,
    minutes=10,
)
