"""From backprop's limit to full alternating minimization: accuracy against the share, everything else the same."""

from itertools import product
from typing import Any

from reproduction import Figure, Run

NETS: dict[str, dict[str, Any]] = {
    "mlp-2x100": {"epochs": 2},
    "mlp-20x100": {"epochs": 2},
    "lenet5": {"epochs": 2, "batch_size": 128},
    "residual-32x32": {"epochs": 2},
}
SHARES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
RUNS = [
    Run(method, net, options={"lr": 0.001, **({"share": share} if method == "am-adam" else {})}, at=share, **more)
    for method, share, (net, more) in product(("am-adam", "adam"), SHARES, NETS.items())
]

FIGURE = Figure(
    name="share",
    title="Test accuracy after two epochs, lr 0.001: share 0 is backprop's limit, 1 the full step",
    runs=RUNS,
    axes=("share",),
    minutes=2,
    log="x",
    quick=lambda run: run.reduced(4_000) if run.at in (0.01, 0.1, 1.0) else None,
)
