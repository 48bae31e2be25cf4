"""Figure 2: MNIST, 50 epochs of the online methods, the offline ones and ADMM."""

from altmin.paper.figures._families import NETS, long_runs, of_paper, offline
from altmin.paper.reproduce import Between, Entry, Figure, Finding, Mark, Results, claim, finding, on_each_net, runs_of

ONLINE, OFFLINE = ("am-adam", "am-mem-fitted", "adam", "sgd"), ("am-adam-offline", "am-mem-fitted-offline", "admm")
PAPER = {
    "am-adam": of_paper(0.1973, 0.1171),
    "adam": of_paper(0.0210, 0.0005),
    "sgd": of_paper(0.2030, 0.1497),
    "am-adam-offline": of_paper(0.5003, 0.4834),
    "am-mem-fitted-offline": of_paper(0.4664, 0.2503),
}
FORGET = (0.9, 0.99, 0.999)
SUMS = {"forget": 1.0, "rate": None}  # the paper's rule: all codes since the first, each for what it is
ENTRIES = [
    *long_runs({}, {}, PAPER, search={"trials": 32, "together": 16}),
    Entry(
        "am-mem-fitted",
        {"lr": 0.001, "forget": 0.9, "damping": 30.0, "rate": 300.0},
        {"lr": Between(1e-4, 1e-2), "forget": FORGET, "damping": Between(1, 300), "rate": Between(30, 3000)},
        search={"trials": 16, "together": 16, "run": {"epochs": 20}},
        paper=of_paper(0.1737, 0.1376),
    ),
    Entry("am-mem-fitted", {"lr": 0.001, **SUMS}, run={"label": "am-mem-fitted, plain sums"}),
    *offline({}, PAPER),
    Entry("admm", run={"batch_size": 10_000}),
]
RUNS, SEARCHES = runs_of("fig2", ENTRIES, NETS, epochs=50)


@claim("C3", "MNIST, 50 epochs: AM-Adam, SGD and Adam reach 0.98", "0.98")
def reach_098(results: Results) -> Finding:
    both = on_each_net(results, RUNS, ("am-adam", "sgd", "adam"))
    against = {f"on {by.about} {m} stays below 0.975": by[m] < 0.975 for by in both for m in by.values}
    return finding(both, against)


@claim("C4", "the same: AM-mem ends lower", "0.91 (2x100), 0.96 (2x500)")
def memory(results: Results) -> Finding:
    both = on_each_net(results, RUNS, ("am-mem-fitted", "am-mem-fitted, plain sums", "am-adam"))
    against = {
        f"with forgetting AM-mem is level with AM-Adam on {by.about}": by["am-mem-fitted"] > by["am-adam"] - 0.01
        for by in both
    }
    return finding(both, against, "only plain sums, the paper's rule, end lower")


@claim("C5", "every offline method is far below every online one", "curves")
def offline_is_slow(results: Results) -> Finding:
    both = on_each_net(results, RUNS, ONLINE + OFFLINE)
    gaps = {by.about: min(by[m] for m in ONLINE) - max(by[m] for m in OFFLINE) for by in both}
    against = {
        f"on {net} the best offline method is only {gap:.3f} below the worst online": gap < 0.02
        for net, gap in gaps.items()
    }
    return finding(both, against)


@claim("C6", "ADMM is slow for 10 epochs, then catches up with AM-mem-off on 2x100", "curves")
def admm_is_slow(results: Results) -> Finding:
    early, (small, large) = on_each_net(results, RUNS, OFFLINE, 5), on_each_net(results, RUNS, (*ONLINE, *OFFLINE))
    nearly = [a["admm"] > b["admm"] - 0.05 for a, b in zip(early, (small, large), strict=True)]
    against = {
        "it has nearly all after 5 epochs": all(nearly),
        "on 2x100 it does not catch up with AM-mem-off": small["admm"] < small["am-mem-fitted-offline"] - 0.02,
        "on 2x500 it is not below all others": any(large[m] <= large["admm"] for m in large.values if m != "admm"),
    }
    return finding(
        [*on_each_net(results, RUNS, OFFLINE)],
        against,
        f"after 5 epochs: {early[0]['admm']:.3f}, {early[1]['admm']:.3f}",
    )


FIGURE = Figure(
    name="fig2",
    title="MNIST, 50 epochs: online, offline, ADMM",
    runs=list(RUNS.values()),
    axes=("epochs", "batches", "seconds"),
    minutes=13,
    searches=SEARCHES,
    bottom=0.75,
    marks=[Mark(f"mnist, {net}", 50, y, f"AM-mem {y}") for net, y in zip(NETS, (0.91, 0.96), strict=True)]
    + [Mark(f"mnist, {net}", 50, 0.98, "AM-Adam, Adam, SGD 0.98") for net in NETS],
    claims=[reach_098, memory, offline_is_slow, admm_is_slow],
)
