"""Beyond the paper: accuracy against depth, of residual nets to 512 layers and plain ones to 64, and along the share,
from backprop's limit to full alternating minimization."""

from dataclasses import replace
from itertools import product
from typing import Any

from reproduction import Entry, Figure, Run, runs_of
from reproduction.figures._common import family

KINDS = {"residual-{}x32": (2, 8, 32, 128, 512), "mlp-{}x100": (2, 4, 8, 16, 32, 64)}
MODELS = {kind.format(depth): (kind.format("D"), depth) for kind, depths in KINDS.items() for depth in depths}
RATES, GRID = (3e-4, 1e-3, 3e-3), {"together": 3, "run": {"limit": 20_000}}
ENTRIES = [
    *(Entry(name, {"lr": 0.001}, {"lr": RATES}, search=GRID) for name in ("am-adam", "adam")),
    Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": (0.01, 0.05, 0.2)}, search=GRID),
    Entry("am-adam-printed", {"lr": 0.001, "code_lr": 0.1}, {"lr": RATES, "code_lr": (0.1,)}, search=GRID),
    Entry("predictive-coding", {"inference_steps": 64, "inference_rate": 0.25}),
]
MADE, SEARCHES = runs_of("depth", ENTRIES, list(MODELS), seeds=3)
DEPTH = Figure(
    name="depth",
    title="Accuracy after one epoch against depth",
    runs=[
        replace(run, title=f"mnist, {MODELS[run.model][0]}", at=MODELS[run.model][1])
        for run in MADE.values()
        if run.method != "predictive-coding" or MODELS[run.model][1] <= 128  # it moves an error by a layer in each step
    ],
    axes=("layers",),
    minutes=20,
    log="x",
    searches=SEARCHES,
    family=family,
    quick=lambda run: run.reduced(2_000) if run.at <= 32 else None,
)

NETS: dict[str, dict[str, Any]] = {
    "mlp-2x100": {},
    "mlp-20x100": {},
    "lenet5": {"batch_size": 128},
    "residual-32x32": {},
}
SHARES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)


def along(method: str, share: float, net: str) -> Run:
    options = {"lr": 0.001, **({"share": share} if method == "am-adam" else {})}
    return Run(method=method, model=net, options=options, epochs=2, at=share, **NETS[net])


SHARE = Figure(
    name="share",
    title="Test accuracy after two epochs, lr 0.001: share 0 is backprop's limit, 1 the full step",
    runs=[along(*which) for which in product(("am-adam", "adam"), SHARES, NETS)],
    axes=("share",),
    minutes=2,
    log="x",
    quick=lambda run: run.reduced(4_000) if run.at in (0.01, 0.1, 1.0) else None,
)
FIGURES = [DEPTH, SHARE]
