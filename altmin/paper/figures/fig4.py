"""Figure 4: CIFAR-10, 50 epochs. Weight decay is searched for all online methods alike; rates fall along a cosine."""

from altmin.paper.figures._families import NETS, long_runs, of_paper, offline
from altmin.paper.reproduce import Between, Entry, Figure, Finding, Mark, Results, claim, finding, on_each_net, runs_of

PAPER = {NETS[0]: {"am-adam": 0.53, "sgd": 0.49, "adam": 0.49}, NETS[1]: {"am-adam": 0.51, "sgd": 0.53, "adam": 0.56}}
ONLINE, OFFLINE = ("am-adam", "am-mem-fitted", "adam", "sgd"), ("am-adam-offline", "am-mem-fitted-offline")
RATES = {
    "am-adam": of_paper(0.1974, 0.1011),
    "adam": of_paper(0.0029, 0.0002),
    "sgd": of_paper(0.1500, 0.1428),
    "am-adam-offline": of_paper(0.5, 0.4844),
    "am-mem-fitted-offline": of_paper(0.2343, 0.2277),
}
ONLINE_RUNS = {"run": {"schedule": "cosine"}, "search": {"trials": 16, "together": 16}}
ENTRIES = [
    *long_runs({"weight_decay": 1e-4}, {"weight_decay": Between(1e-6, 1e-2)}, RATES, **ONLINE_RUNS),
    Entry(
        "am-mem-fitted",
        {"lr": 0.001, "damping": 30.0, "rate": 300.0},
        {"lr": Between(1e-4, 1e-2), "damping": Between(1, 300), "rate": Between(10, 3000)},
        search={"trials": 8, "together": 8, "run": {"epochs": 15}},
        paper=of_paper(0.1746, 0.1016),
    ),
    *offline({"schedule": "constant"}, RATES),
]
RUNS, SEARCHES = runs_of("fig4", ENTRIES, NETS, data="cifar10", epochs=50)


@claim(
    "C8",
    "CIFAR-10, 50 epochs: AM-Adam first on 2x100, last on 2x500",
    "2x100: AM-Adam 0.53, SGD 0.49, Adam 0.49; 2x500: 0.51, 0.53, 0.56",
)
def levels(results: Results) -> Finding:
    small, large = on_each_net(results, RUNS, ("am-adam", "sgd", "adam"))
    against = {
        "on 2x100 AM-Adam stays below 0.52": small["am-adam"] < 0.52,
        "on 2x100 AM-Adam is not ahead of Adam and SGD": small["am-adam"] <= max(small["adam"], small["sgd"]),
        "on 2x500 AM-Adam is not behind Adam": large["am-adam"] >= large["adam"],
    }
    return finding([small, large], against)


@claim("C9", "CIFAR-10: AM-mem below all three; offline far below online", "curves")
def memory_and_offline(results: Results) -> Finding:
    both = on_each_net(results, RUNS, (*ONLINE, *OFFLINE))
    against = {
        f"on {by.about} AM-mem is not below all three": by["am-mem-fitted"]
        >= min(by[m] for m in ("am-adam", "adam", "sgd"))
        for by in both
    }
    against |= {
        f"on {by.about} offline is not 0.02 below every online method": max(by[m] for m in OFFLINE)
        > min(by[m] for m in ONLINE) - 0.02
        for by in both
    }
    return finding(both, against)


FIGURE = Figure(
    name="fig4",
    title="CIFAR-10, 50 epochs",
    runs=list(RUNS.values()),
    axes=("epochs", "batches", "seconds"),
    minutes=10,
    searches=SEARCHES,
    marks=[Mark(f"cifar10, {net}", 50, y, f"{m} {y}") for net, by in PAPER.items() for m, y in by.items()],
    claims=[levels, memory_and_offline],
)
