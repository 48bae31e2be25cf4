"""What the authors' public code changes in the printed AM-Adam: means over units, and a penalty without a gradient."""

from itertools import product
from typing import Any

from reproduction import Entry, Figure, runs_of

LABELS = {
    (False, True): "sums, penalty (as printed)",
    (False, False): "sums, penalty without a gradient",
    (True, True): "means, penalty",
    (True, False): "means, penalty without a gradient (public code)",
}
"""By `mean` and `anchored`, options of `PrintedCodes`."""
CODE_RATES = {False: (0.03, 0.1, 1.0), True: (0.03, 0.3, 3.0)}
GRID = {"together": 9, "run": {"epochs": 2}}


def entry(mean: bool, anchored: bool) -> Entry:
    options: dict[str, Any] = {"lr": 0.003, "code_lr": 0.1, "mean": mean, "anchored": anchored}
    space = {"lr": (0.001, 0.003, 0.01), "code_lr": CODE_RATES[mean]}
    return Entry("am-adam-printed", options, space, {"label": LABELS[mean, anchored]}, GRID)


ENTRIES = [entry(*which) for which in product((False, True), (True, False))]
RUNS, SEARCHES = runs_of("public_code", ENTRIES, ["mlp-2x100"], epochs=5, eval_batches=(10, 25, 50, 100))

FIGURE = Figure(
    name="public_code",
    title="The printed AM-Adam and the public code",
    runs=list(RUNS.values()),
    searches=SEARCHES,
    bottom=0.85,
)
