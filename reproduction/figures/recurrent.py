"""MNIST as sequences: figure 6 and rnn50, Elman nets with one pixel a step; and beyond the paper rows of 28 pixels (how
far back errors have to travel) and gated nets on all 784 pixels, in the order of the image and in a random one."""

from collections.abc import Callable, Mapping
from typing import Any

from reproduction import Claim, Compared, Entry, Figure, Results, compared, runs_of, statement
from reproduction.figures._common import ADAM, OURS, SGD, beside, both, by_grid, family, rivals

TRUNCATED = "am-adam, parallel sweep"


def elman(name: str, units: int, rates: tuple[float, ...], paper: Mapping[str, float], **printed: Any) -> Figure:
    """Return the figure of an Elman net on MNIST, one pixel a step, 10 epochs: AM-Adam beside backprop through time.
    paper: the rates that it found for Adam and SGD. printed: the schedule of mu that it found."""
    net, grid = f"elman-{units}", {"together": 4, "run": {"epochs": 5}}
    options, space = {"lr": 0.005, "code_lr": 1.0, "steps": 5, **printed}, {"lr": (0.002, 0.005), "code_lr": (0.3, 3.0)}
    as_printed = [
        Entry("am-adam-printed", options, space, search=grid),
        *rivals({method: {net: lr} for method, lr in paper.items()}),
    ]
    same = {"data": "mnist-sequential", "epochs": 10, "batch_size": 1024, "seeds": 3}
    truncated = Entry("am-adam", {"lr": 0.005, "codes": "parallel"}, {"lr": rates}, {"label": TRUNCATED}, grid)
    runs, searches = both(name, as_printed, [*by_grid(0.005, rates, grid), truncated], [net], **same)

    def after(*epochs: int) -> Callable[[Results], list[Compared]]:
        named = list(zip((net, OURS), beside("am-adam"), strict=True))
        return lambda results: [
            compared(results, [runs[net, name] for name in names], about, epoch=epoch)
            for epoch in epochs
            for about, names in named
        ]

    like_adam = statement(
        f"d = {units}: AM-Adam is like Adam in the first epoch",
        "after one epoch the printed AM-Adam (and ours, beside a searched Adam) is not behind Adam by more than 0.02 "
        "or twice the standard error",
        after(1),
        lambda printed, ours: not printed.behind("am-adam-printed", [ADAM], 0.02),
        lambda printed, ours: not ours.behind("am-adam", ["adam"], 0.02),
        "the printed AM-Adam starts slower",
    )
    above_sgd = statement(
        f"d = {units}: AM-Adam is above SGD up to epoch 6",
        "the printed AM-Adam (and ours, beside a searched SGD) is above SGD after epochs 1, 3 and 6",
        after(1, 3, 6),
        lambda *found: all(printed["am-adam-printed"] > printed[SGD] for printed in found[::2]),
        lambda *found: all(ours["am-adam"] > ours["sgd"] for ours in found[1::2]),
        "the printed AM-Adam is not above SGD at the paper's rate",
        lambda *found: all(printed.near("am-adam-printed", [SGD]) or printed.above() for printed in found[::2]),
    )

    def apart(printed: Compared) -> float:
        return printed["am-adam-printed"] - printed[SGD]

    matches_sgd = statement(
        f"d = {units}: AM-Adam matches SGD afterwards",
        "after ten epochs the printed AM-Adam is within 0.02 of SGD; ours, beside a searched SGD, is not "
        "behind it by more than twice the standard error",
        after(10),
        lambda printed, ours: abs(apart(printed)) <= 0.02,
        lambda printed, ours: not ours.behind("am-adam", ["sgd"]),
        lambda printed, ours: f"the printed AM-Adam ends {apart(printed):+.3f} from SGD at the paper's rate",
    )
    text = "RNN: AM-Adam like Adam in the first epoch, above SGD to epoch 6, level after (d = 15 and 50)"
    return Figure(
        name,
        f"sequential MNIST, Elman net, {units} units",
        list(runs.values()),
        minutes=6,
        bottom=0.7,
        family=family,
        level=True,
        searches=searches,
        claims=[Claim("C12", text, "curves, no numbers", [like_adam, above_sgd, matches_sgd])],
    )


RATES, GRID = {"lr": (0.002, 0.005, 0.01)}, {"together": 3, "run": {"epochs": 2}}
EXACT = [Entry(name, {"lr": 0.005}, RATES, search=GRID) for name in ("am-adam", "adam")]
PARALLEL = Entry("am-adam", {"lr": 0.005, "codes": "parallel"}, RATES, {"label": TRUNCATED}, GRID)
SAME: dict[str, Any] = {"data": "mnist-rows", "epochs": 5, "seeds": 3}
ELMAN, SEARCHES1 = runs_of("rows", [*EXACT, PARALLEL], ["elman-15", "elman-50"], **SAME)
GATED, SEARCHES2 = runs_of("rows", EXACT, ["gru-1x64", "lstm-1x64", "mingru-2x64"], **SAME)
PIXELS = [
    runs_of("pixels", EXACT, ["gru-1x64", "mingru-2x64"], data=data, epochs=5, seeds=3)
    for data in ("mnist-sequential", "mnist-permuted")
]
RNN50 = elman(
    "rnn50", 50, (0.001, 0.002, 0.005), {"adam": 0.005, "sgd": 0.005}, increment=1e-4, growth=1.0, maximum=1.0
)
FIGURES = [
    elman("fig6", 15, (0.002, 0.005, 0.01), {"adam": 0.005, "sgd": 0.05}, increment=0.01, growth=1.1, maximum=1.0),
    RNN50,
    Figure(
        name="rows",
        title="MNIST row by row: Elman nets and gated ones",
        runs=[*ELMAN.values(), *GATED.values()],
        searches=[*SEARCHES1, *SEARCHES2],
        family=family,
        bottom=0.7,
    ),
    Figure(
        name="pixels",
        title="MNIST pixel by pixel, 784 steps",
        runs=[run for runs, _ in PIXELS for run in runs.values()],
        searches=[search for _, searches in PIXELS for search in searches],
        family=family,
        minutes=10,
    ),
]
