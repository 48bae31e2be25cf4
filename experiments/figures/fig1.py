"""Figure 1: MNIST, the first epoch of the online methods, test accuracy after each of the first 50 batches."""

from itertools import product
from statistics import mean

from altmin.reproduce import Between, Claim, Figure, Finding, Results, Run, Search, settings
from altmin.reproduce.results import deviation, words

NETS = ("mlp-2x100", "mlp-2x500")
OPTIONS = {
    "am-adam": {"lr": 0.004},
    "am-mem": {"lr": 0.002, "damping": 30.0, "rate": 300.0},
    "adam": {"lr": 0.004},
    "sgd": {"lr": 0.05},
}
RATES = {"lr": Between(1e-4, 3e-2)}
SPACES = {
    "am-adam": RATES,
    "am-mem": {**RATES, "damping": Between(1, 300), "rate": Between(30, 1000)},
    "adam": RATES,
    "sgd": {"lr": Between(1e-3, 1.0)},
}
PAPER = {"am-adam": (0.1973, 0.1171), "am-mem": (0.1737, 0.1376), "adam": (0.0210, 0.0005), "sgd": (0.2030, 0.1497)}
SEARCHES = [
    Search(Run(method, net, options=OPTIONS[method]), SPACES[method], at_batch=50, paper={"lr": PAPER[method][i]})
    for (i, net), method in product(enumerate(NETS), OPTIONS)
]
RUNS = {
    (net, method): Run(
        method,
        net,
        options=settings("fig1", method=method, model=net, default=OPTIONS[method]),
        eval_batches=tuple(range(1, 51)),
    )
    for net, method in product(NETS, OPTIONS)
}


def early(results: Results, net: str, method: str) -> list[float]:
    """The mean accuracy over the first 50 batches, of every seed."""
    each = [results.values(RUNS[net, method], batch=n) for n in range(1, 51)]
    return [mean(values) for values in zip(*each, strict=True)]


def compared(results: Results, net: str) -> tuple[str, dict[str, list[float]]]:
    found = {method: early(results, net, method) for method in OPTIONS}
    return f"{net}: " + ", ".join(f"{method} {words(values)}" for method, values in found.items()), found


def am_adam_keeps_up(results: Results) -> Finding:
    texts, found = zip(*(compared(results, net) for net in NETS), strict=True)
    behind = [net for net, by in zip(NETS, found, strict=True) if mean(by["am-adam"]) < mean(by["adam"]) - 0.01]
    spread = max(deviation(values) for by in found for values in by.values())
    return Finding("; ".join(texts), not behind, spread, f"AM-Adam is behind Adam on {', '.join(behind)}")


def am_mem_keeps_up(results: Results) -> Finding:
    texts, found = zip(*(compared(results, net) for net in NETS), strict=True)
    small, large = ({name: mean(values) for name, values in by.items()} for by in found)
    low, high = sorted((small["sgd"], small["adam"]))
    reasons = [] if large["am-mem"] >= large["adam"] - 0.02 else ["on 2x500 it is more than 0.02 behind Adam"]
    if not low <= small["am-mem"] <= high:
        place = "above" if small["am-mem"] > high else "below"
        reasons.append(f"on 2x100 it is {place} both SGD and Adam")
    spread = max(deviation(values) for by in found for values in by.values())
    return Finding("; ".join(texts), not reasons, spread, " and ".join(reasons))


FIGURE = Figure(
    name="fig1",
    title="MNIST, first epoch, online methods",
    runs=list(RUNS.values()),
    axes=("batches", "epochs", "seconds"),
    minutes=1,
    searches=SEARCHES,
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
