"""Figure 1: MNIST, the first epoch of the online methods, test accuracy after each of the first 50 batches."""

from altmin.paper.reproduce import Between, Claim, Entry, Figure, Finding, Results, finding, over, runs_of

NETS = ("mlp-2x100", "mlp-2x500")
FIRST = range(1, 51)
SEARCH = {"trials": 32, "together": 16, "seeds": 2, "run": {"limit": 10_000, "eval_batches": ()}}  # 50 batches
ENTRIES = [
    Entry("am-adam", {"lr": 0.004}, {"lr": Between(3e-4, 3e-2)}, search=SEARCH),
    Entry(
        "am-mem",
        {"lr": 0.002, "damping": 30.0, "rate": 300.0},
        {"lr": Between(3e-4, 3e-2), "damping": Between(1, 300), "rate": Between(30, 3000)},
        search=SEARCH,
    ),
    Entry("adam", {"lr": 0.004}, {"lr": Between(3e-4, 3e-2)}, search=SEARCH),
    Entry("sgd", {"lr": 0.2, "momentum": 0.0}, {"lr": Between(1e-2, 2.0)}, search=SEARCH),
]
RUNS, SEARCHES = runs_of("fig1", ENTRIES, NETS, eval_batches=(*FIRST, *range(60, 250, 10)))


def early(results: Results, methods: tuple[str, ...]):
    """The mean accuracy over the first 50 batches, by net."""
    return [over(results, [RUNS[net, m] for m in methods], f"{net}, first 50 batches", FIRST) for net in NETS]


def am_adam_keeps_up(results: Results) -> Finding:
    both = early(results, ("am-adam", "adam", "sgd"))
    pairs = [(by, m) for by in both for m in ("adam", "sgd")]
    return finding(both, {f"{by.about}: AM-Adam is 0.01 behind {m}": by["am-adam"] < by[m] - 0.01 for by, m in pairs})


def am_mem_keeps_up(results: Results) -> Finding:
    small, large = early(results, ("am-mem", "adam", "sgd"))
    low, high = sorted((small["sgd"], small["adam"]))
    against = {
        "on 2x500 AM-mem is more than 0.02 behind Adam": large["am-mem"] < large["adam"] - 0.02,
        "on 2x100 AM-mem is above both SGD and Adam": small["am-mem"] > high,
        "on 2x100 AM-mem is below both SGD and Adam": small["am-mem"] < low,
    }
    return finding([small, large], against)


FIGURE = Figure(
    name="fig1",
    title="MNIST, first epoch, online methods",
    runs=list(RUNS.values()),
    axes=("batches", "epochs", "seconds"),
    minutes=1,
    searches=SEARCHES,
    bottom=0.5,
    claims=[
        Claim(
            "C1",
            "MNIST, first 50 batches: AM-Adam is comparable to SGD and Adam, early even slightly better",
            "curves, no numbers",
            am_adam_keeps_up,
        ),
        Claim(
            "C2",
            "the same: AM-mem is comparable on 2x500, between SGD and Adam on 2x100",
            "curves, no numbers",
            am_mem_keeps_up,
        ),
    ],
)
