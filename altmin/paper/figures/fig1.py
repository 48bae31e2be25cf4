"""Figure 1: MNIST, the first epoch of the online methods, test accuracy after each of the first 50 batches."""

from altmin.paper.figures._families import FIRST, NETS, online
from altmin.paper.reproduce import Between, Compared, Figure, Finding, Results, claim, finding, over, runs_of

ENTRIES = online(0.004, Between(3e-4, 3e-2), Between(3e-4, 3e-2), 0.2, Between(1e-2, 2.0))
RUNS, SEARCHES = runs_of("fig1", ENTRIES, NETS, eval_batches=(*FIRST, *range(60, 250, 10)))


def early(results: Results, methods: tuple[str, ...]) -> list[Compared]:
    """The mean accuracy over the first 50 batches, by net."""
    return [over(results, [RUNS[net, m] for m in methods], f"{net}, first 50 batches", FIRST) for net in NETS]


@claim(
    "C1",
    "MNIST, first 50 batches: AM-Adam is comparable to SGD and Adam, early even slightly better",
    "curves, no numbers",
)
def am_adam_keeps_up(results: Results) -> Finding:
    both = early(results, ("am-adam", "adam", "sgd"))
    pairs = [(by, m) for by in both for m in ("adam", "sgd")]
    return finding(both, {f"{by.about}: AM-Adam is 0.01 behind {m}": by["am-adam"] < by[m] - 0.01 for by, m in pairs})


@claim("C2", "the same: AM-mem is comparable on 2x500, between SGD and Adam on 2x100", "curves, no numbers")
def am_mem_keeps_up(results: Results) -> Finding:
    small, large = early(results, ("am-mem-fitted", "adam", "sgd"))
    low, high = sorted((small["sgd"], small["adam"]))
    against = {
        "on 2x500 AM-mem is more than 0.02 behind Adam": large["am-mem-fitted"] < large["adam"] - 0.02,
        "on 2x100 AM-mem is above both SGD and Adam": small["am-mem-fitted"] > high,
        "on 2x100 AM-mem is below both SGD and Adam": small["am-mem-fitted"] < low,
    }
    return finding([small, large], against)


FIGURE = Figure(
    name="fig1",
    title="MNIST, first epoch, online methods",
    runs=list(RUNS.values()),
    axes=("batches", "epochs", "seconds"),
    searches=SEARCHES,
    bottom=0.5,
    claims=[am_adam_keeps_up, am_mem_keeps_up],
)
