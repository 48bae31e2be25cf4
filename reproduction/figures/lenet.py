"""LeNet-5: figure 7 on MNIST, and the appendix on Fashion-MNIST; and what the authors' public code changes in the
printed AM-Adam: means over units, and a penalty without a gradient."""

from itertools import product
from typing import Any

from reproduction import Claim, Compared, Entry, Figure, Results, compared, runs_of, statement
from reproduction.figures._common import ADAM, OURS, SGD, beside, both, by_grid, family, rivals

PUBLIC = "am-adam-printed, as in the public code"


def lenet(name: str, data: str, increment: float) -> Figure:
    """Return the figure of AM-Adam, Adam and SGD over 10 epochs. increment: of mu with each batch, as the paper found
    it."""
    net, early = "lenet5", (25, 50, 100, 200)
    mu = {"mu": 0.01, "increment": increment, "growth": 1.1, "maximum": 1.5, "code_steps": 1}
    start, space = {"lr": 0.002, "code_lr": 1.0}, {"lr": (2e-5, 2e-4, 2e-3, 2e-2), "code_lr": (0.1, 1.0)}
    public, search = {**start, "mean": True, "anchored": False, **mu}, {"together": 8}
    printed = [
        Entry("am-adam-printed", {**start, **mu}, space, search=search),
        Entry("am-adam-printed", public, space, {"label": PUBLIC}, search),
        *rivals({"adam": {net: 0.002}, "sgd": {net: 0.02}}),
    ]
    ours = by_grid(0.001, (5e-4, 1e-3, 2e-3), {"together": 4})
    runs, searches = both(name, printed, ours, [net], data=data, epochs=10, batch_size=128, eval_batches=early)

    def found(results: Results) -> list[Compared]:
        as_printed = [runs[net, name] for name in ("am-adam-printed", PUBLIC, ADAM, SGD)]
        searched = [runs[net, name] for name in beside("am-adam")[1]]
        return [compared(results, as_printed, data, epoch=10), compared(results, searched, OURS, epoch=10)]

    above_sgd = statement(
        f"{data}: AM-Adam clearly above SGD",
        "after ten epochs the printed AM-Adam (and ours, beside a searched SGD) is ahead of SGD by more than twice the "
        "standard error",
        found,
        lambda printed, ours: not printed.not_ahead("am-adam-printed", [SGD]),
        lambda printed, ours: not ours.not_ahead("am-adam", ["sgd"]),
        "SGD ends level: its best rate in the paper's grid was the largest, and larger ones are better",
        lambda printed, ours: printed.near("am-adam-printed", [SGD]),
    )
    below_adam = statement(
        f"{data}: AM-Adam somewhat below Adam",
        "after ten epochs the printed AM-Adam is below Adam; ours is level with a searched Adam, within "
        "twice the standard error, or above",
        found,
        lambda printed, ours: printed["am-adam-printed"] < printed[ADAM],
        lambda printed, ours: not ours.behind("am-adam", ["adam"]),
        "AM-Adam is not below Adam",
        lambda printed, ours: printed.near("am-adam-printed", [ADAM]),
    )
    text = "LeNet-5: AM-Adam clearly above SGD, somewhat below Adam (MNIST and Fashion-MNIST)"
    return Figure(
        name,
        f"{data}, LeNet-5",
        list(runs.values()),
        bottom=0.9 if data == "mnist" else 0.7,
        family=family,
        level=True,
        searches=searches,
        claims=[Claim("C13", text, "curves, no numbers", [above_sgd, below_adam])],
    )


LABELS = {
    (False, True): "sums, penalty (as printed)",
    (False, False): "sums, penalty without a gradient",
    (True, True): "means, penalty",
    (True, False): "means, penalty without a gradient (public code)",
}
"""By `mean` and `anchored`, options of `PrintedCodes`."""
CODE_RATES = {False: (0.03, 0.1, 1.0), True: (0.03, 0.3, 3.0)}


def variant(mean: bool, anchored: bool) -> Entry:
    options: dict[str, Any] = {"lr": 0.003, "code_lr": 0.1, "mean": mean, "anchored": anchored}
    space, search = {"lr": (0.001, 0.003, 0.01), "code_lr": CODE_RATES[mean]}, {"together": 9, "run": {"epochs": 2}}
    return Entry("am-adam-printed", options, space, {"label": LABELS[mean, anchored]}, search)


VARIANTS = [variant(*which) for which in product((False, True), (True, False))]
RUNS, SEARCHES = runs_of("public_code", VARIANTS, ["mlp-2x100"], epochs=5, eval_batches=(10, 25, 50, 100))
FIGURES = [
    lenet("fig7", "mnist", increment=1e-7),
    lenet("fashion", "fashion-mnist", increment=1e-5),
    Figure(
        name="public_code",
        title="The printed AM-Adam and the public code",
        runs=list(RUNS.values()),
        searches=SEARCHES,
        bottom=0.85,
    ),
]
