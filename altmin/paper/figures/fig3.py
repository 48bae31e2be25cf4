"""Figure 3: CIFAR-10, the first epoch of the online methods."""

from dataclasses import replace

from altmin.paper.figures._families import FIRST, NETS, online
from altmin.paper.reproduce import Between, Figure, Finding, Results, claim, finding, over, runs_of

AFTER = (*FIRST, *range(60, 200, 10))
ENTRIES = online(0.002, Between(1e-4, 1e-2), Between(3e-4, 1e-2), 0.1, Between(3e-3, 1.0))
RUNS, SEARCHES = runs_of("fig3", ENTRIES, NETS, data="cifar10", eval_batches=AFTER)


@claim("C7", "CIFAR-10, first 50 batches: AM-Adam is slightly ahead of SGD and Adam", "curves, no numbers")
def slightly_ahead(results: Results) -> Finding:
    both = [over(results, [RUNS[net, m] for m in ("am-adam", "adam", "sgd")], net, FIRST) for net in NETS]
    against = {
        f"on {by.about} AM-Adam is not ahead of {m}": by["am-adam"] <= by[m] for by in both for m in ("adam", "sgd")
    }
    return finding(both, against, "means over the first 50 batches")


FIGURE = Figure(
    name="fig3",
    title="CIFAR-10, first epoch, online methods",
    runs=list(RUNS.values()),
    axes=("batches", "epochs", "seconds"),
    searches=SEARCHES,
    bottom=0.1,
    quick=lambda run: replace(run.reduced(), eval_batches=(1, 2, 5, 10, 20, 30, 40, 50)),
    claims=[slightly_ahead],
)
