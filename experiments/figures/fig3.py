"""Figure 3: CIFAR-10, the first epoch of the online methods."""

from dataclasses import replace

from altmin.paper.reproduce import Between, Claim, Entry, Figure, Finding, Results, finding, over, runs_of

NETS = ("mlp-2x100", "mlp-2x500")
FIRST = range(1, 51)
AFTER = (*FIRST, *range(60, 200, 10))
SEARCH = {"trials": 32, "together": 16, "seeds": 2, "run": {"limit": 10_000, "eval_batches": ()}}  # 50 batches
ENTRIES = [
    Entry("am-adam", {"lr": 0.002}, {"lr": Between(1e-4, 1e-2)}, search=SEARCH),
    Entry(
        "am-mem",
        {"lr": 0.002, "damping": 30.0, "rate": 300.0},
        {"lr": Between(3e-4, 1e-2), "damping": Between(1, 300), "rate": Between(30, 3000)},
        search=SEARCH,
    ),
    Entry("adam", {"lr": 0.002}, {"lr": Between(1e-4, 1e-2)}, search=SEARCH),
    Entry("sgd", {"lr": 0.1, "momentum": 0.0}, {"lr": Between(3e-3, 1.0)}, search=SEARCH),
]
RUNS, SEARCHES = runs_of("fig3", ENTRIES, NETS, data="cifar10", eval_batches=AFTER)


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
    minutes=1,
    searches=SEARCHES,
    bottom=0.1,
    quick=lambda run: replace(run.reduced(), eval_batches=(1, 2, 5, 10, 20, 30, 40, 50)),
    claims=[
        Claim(
            "C7",
            "CIFAR-10, first 50 batches: AM-Adam is slightly ahead of SGD and Adam",
            "curves, no numbers",
            slightly_ahead,
        )
    ],
)
