"""Accuracy against depth: one epoch of MNIST, residual nets to 512 layers and plain ones to 64."""

from dataclasses import replace

from reproduction import Entry, Figure, runs_of
from reproduction.figures._families import family

KINDS = {"residual-{}x32": (2, 8, 32, 128, 512), "mlp-{}x100": (2, 4, 8, 16, 32, 64)}
GRID = {"together": 3, "run": {"limit": 20_000}}
ENTRIES = [
    Entry("am-adam", {"lr": 0.001}, {"lr": (3e-4, 1e-3, 3e-3)}, search=GRID),
    Entry("adam", {"lr": 0.001}, {"lr": (3e-4, 1e-3, 3e-3)}, search=GRID),
    Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": (0.01, 0.05, 0.2)}, search=GRID),
    Entry(
        "am-adam-printed",
        {"lr": 0.001, "code_lr": 0.1},
        {"lr": (3e-4, 1e-3, 3e-3), "code_lr": (0.1,)},
        search=GRID,
    ),
    Entry("predictive-coding", {"inference_steps": 64, "inference_rate": 0.25}),
]
MODELS = {kind.format(depth): (kind.format("D"), depth) for kind, depths in KINDS.items() for depth in depths}
MADE, SEARCHES = runs_of("depth", ENTRIES, list(MODELS), seeds=3)
RUNS = [
    replace(run, title=f"mnist, {MODELS[run.model][0]}", at=MODELS[run.model][1])
    for run in MADE.values()
    if run.method != "predictive-coding" or MODELS[run.model][1] <= 128
]
"""Predictive coding moves an error by one layer in each of its 64 steps of inference: 512 layers are out of reach."""

FIGURE = Figure(
    name="depth",
    title="Accuracy after one epoch against depth",
    runs=RUNS,
    axes=("layers",),
    minutes=20,
    log="x",
    searches=SEARCHES,
    family=family,
    quick=lambda run: run.reduced(2_000) if run.at <= 32 else None,
)
