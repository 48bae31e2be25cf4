"""Run times (appendix): fully connected nets over 1,500 batches, LeNet-5 over 450; and the memory that they take."""

from itertools import product
from statistics import mean, median
from typing import Any

from altmin.paper.reproduce import Figure, Finding, Results, Timing, claim, seconds_per_epoch, unevenness

METHODS = ("am-adam", "am-sgd", "am-mem", "adam", "sgd")
NETS: dict[str, dict[str, Any]] = {
    "mlp-2x100": {"limit": 10_000, "epochs": 31},  # 50 batches an epoch; the first epoch does not count
    "mlp-2x500": {"limit": 10_000, "epochs": 31},
    "lenet5": {"limit": 6_400, "epochs": 10, "batch_size": 128},  # 450 batches after the first epoch
}
TIMES = {
    (net, method, recorded): Timing(
        *(method, net),
        recorded=recorded,
        title=f"{net}, {'recorded' if recorded else 'ordinary'} steps",
        seeds=2,
        **NETS[net],
    )
    for recorded, net, method in product((False, True), NETS, METHODS)
    if (net, method) != ("lenet5", "am-mem") and not (recorded and method in ("am-sgd", "sgd"))
}


def ratios(results: Results, net: str, recorded: bool, method: str = "am-adam", rival: str = "adam") -> float:
    """The mean time of an epoch, over that of a rival."""
    return mean(map(seconds_per_epoch, results.all(TIMES[net, method, recorded]))) / mean(
        map(seconds_per_epoch, results.all(TIMES[net, rival, recorded]))
    )


@claim("C15", "run time like Adam's, linear in batches", "9.6/8.7 s (30 epochs), 443/440 s (LeNet-5)")
def about_as_fast(results: Results) -> Finding:
    by = {how: {net: ratios(results, net, how) for net in NETS} for how in (True, False)}
    steps = {True: "recorded steps", False: "ordinary steps"}
    each = [f"{steps[how]} {', '.join(f'{net} {v:.2f}' for net, v in found.items())}" for how, found in by.items()]
    bent = [unevenness(row) for run in TIMES.values() for row in results.all(run)]
    line = f"off a straight line by {median(bent):.3f} of the whole (median), {max(bent):.3f} (most)"
    slow = {how: max(found.values()) for how, found in by.items()}
    reasons = [
        f"with {steps[how]} AM-Adam takes up to {most:.2f} times as long" for how, most in slow.items() if most > 1.15
    ]
    reasons += ["the time is not linear in batches"] if median(bent) > 0.05 else []
    return Finding(f"AM-Adam/Adam on a GPU: {'; '.join(each)}; {line}", not reasons, None, " and ".join(reasons))


@claim("C17", "memory like SGD's: one set of auxiliary variables, no multipliers", "no numbers")
def memory_like_sgd(results: Results) -> Finding:
    def peak(net: str, method: str) -> float:
        # The first run of a process also has the libraries' workspaces.
        return min(row["peak_memory"] for row in results.all(TIMES[net, method, False]))

    found = {net: peak(net, "am-sgd") / peak(net, "sgd") for net in NETS}
    text = ", ".join(f"{net} {value:.2f}" for net, value in found.items())
    most = max(found.values())
    return Finding(
        f"peak memory AM-SGD/SGD: {text}", most <= 1.5, None, f"a step takes up to {most:.2f} times the memory"
    )


FIGURE = Figure(
    name="runtimes",
    title="Seconds of training after the first epoch",
    runs=list(TIMES.values()),
    axes=("batches", "epochs"),
    minutes=4,
    measure="seconds",
    claims=[about_as_fast, memory_like_sgd],
    quick=lambda run: None if run.recorded else run.reduced(),
)
