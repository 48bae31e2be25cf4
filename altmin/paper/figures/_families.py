"""What two figures have in common: first epochs of two data sets, recurrent nets of two sizes, LeNet-5."""

from collections.abc import Mapping, Sequence
from typing import Any

from altmin.paper.reproduce import Between, Entry, Figure, Finding, Results, claim, compared, finding, runs_of

NETS = ("mlp-2x100", "mlp-2x500")
FIRST = range(1, 51)
"""The batches after which first epochs are evaluated."""


def by_grid(lr: float, rates: Sequence[float], search: Mapping[str, Any]) -> list[Entry]:
    """AM-Adam, Adam and SGD, the rate of each chosen from a few."""
    adams = [Entry(name, {"lr": lr}, {"lr": rates}, search=search) for name in ("am-adam", "adam")]
    return [*adams, Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": (0.02, 0.05, 0.1, 0.2)}, search=search)]


def online(lr: float, rates: Between, memory: Between, sgd: float, sgd_rates: Between) -> list[Entry]:
    """AM-Adam, AM-mem, Adam and SGD in their first epoch, searched for after 50 batches."""
    search = {"trials": 32, "together": 16, "seeds": 2, "run": {"limit": 10_000, "eval_batches": ()}}
    options = {"lr": 0.002, "damping": 30.0, "rate": 300.0}
    space = {"lr": memory, "damping": Between(1, 300), "rate": Between(30, 3000)}
    return [
        Entry("am-adam", {"lr": lr}, {"lr": rates}, search=search),
        Entry("am-mem-fitted", options, space, search=search),
        Entry("adam", {"lr": lr}, {"lr": rates}, search=search),
        Entry("sgd", {"lr": sgd, "momentum": 0.0}, {"lr": sgd_rates}, search=search),
    ]


def of_paper(*rates: float) -> dict[str, float]:
    """The learning rates that the paper found, by net."""
    return dict(zip(NETS, rates, strict=True))


def long_runs(
    decay: Mapping[str, float], space: Mapping[str, Between], paper: Mapping[str, Mapping[str, float]], **same: Any
) -> list[Entry]:
    """AM-Adam, Adam and SGD over 50 epochs, with weight decay where it is searched. same: of `Entry`."""
    adam, sgd = {"lr": 1e-3, **decay}, {"lr": 0.1, **decay, "momentum": 0.0}
    rates = {"lr": Between(1e-4, 1e-2), **space}
    return [
        *(Entry(name, adam, rates, paper=paper[name], **same) for name in ("am-adam", "adam")),
        Entry("sgd", sgd, {"lr": Between(1e-2, 1.0), **space}, paper=paper["sgd"], **same),
    ]


def offline(run: Mapping[str, Any], paper: Mapping[str, Mapping[str, float]]) -> list[Entry]:
    """AM-Adam-off and AM-mem-off over 50 epochs; each epoch sees the data in parts of 10,000 samples; their results
    do not depend on the parts."""
    parts, search = {"batch_size": 10_000, **run}, {"trials": 12, "together": 6}
    names = ("am-adam-offline", "am-mem-fitted-offline")
    return [Entry(name, {"lr": 0.03}, {"lr": Between(3e-3, 0.3)}, parts, search, paper[name]) for name in names]


def recurrent(name: str, units: int, rates: tuple[float, ...]) -> Figure:
    """An Elman net on MNIST, one pixel a step, 10 epochs: AM-Adam beside backprop through time, all at best rates."""
    net, grid = f"elman-{units}", {"together": 4, "run": {"epochs": 5}}
    made, searches = runs_of(
        name, by_grid(0.005, rates, grid), [net], data="mnist-sequential", epochs=10, batch_size=1024, seeds=3
    )
    runs = list(made.values())

    text = "RNN: AM-Adam like Adam in the first epoch, above SGD to epoch 6, level after (d = 15 and 50)"

    @claim("C12", text, "curves, no numbers")
    def judge(results: Results) -> Finding:
        first, sixth, last = (compared(results, runs, f"{net}, epoch {n}", epoch=n) for n in (1, 6, 10))
        against = {
            f"{net}: AM-Adam is more than 0.02 behind Adam in epoch 1": first["am-adam"] < first["adam"] - 0.02,
            f"{net}: AM-Adam is not above SGD in epoch 1": first["am-adam"] <= first["sgd"],
            f"{net}: AM-Adam is below SGD at epoch 6": sixth["am-adam"] < sixth["sgd"],
            f"{net}: AM-Adam is not level with Adam at the end": abs(last["am-adam"] - last["adam"]) > 0.02,
            f"{net}: AM-Adam is not level with SGD at the end": abs(last["am-adam"] - last["sgd"]) > 0.02,
        }
        return finding([first, sixth, last], against)

    return Figure(
        name,
        f"sequential MNIST, Elman net, {units} units",
        runs,
        minutes=6,
        bottom=0.7,
        searches=searches,
        claims=[judge],
    )


def lenet(name: str, data: str) -> Figure:
    """LeNet-5, 10 epochs: AM-Adam, Adam and SGD, each at its best rate."""
    entries, early = by_grid(0.001, (5e-4, 1e-3, 2e-3), {"together": 4}), (25, 50, 100, 200)
    made, searches = runs_of(name, entries, ["lenet5"], data=data, epochs=10, batch_size=128, eval_batches=early)
    runs = list(made.values())
    text = "LeNet-5: AM-Adam clearly above SGD, somewhat below Adam (MNIST and Fashion-MNIST)"

    @claim("C13", text, "curves, no numbers")
    def judge(results: Results) -> Finding:
        first, last = (compared(results, runs, f"{data}, epoch {n}", epoch=n) for n in (1, 10))
        against = {
            f"on {data} AM-Adam is not above SGD after epoch 1": first["am-adam"] <= first["sgd"],
            f"on {data} AM-Adam is not above SGD at the end": last["am-adam"] <= last["sgd"],
            f"on {data} AM-Adam is not below Adam, but level or above": last["am-adam"] >= last["adam"],
        }
        return finding([first, last], against)

    return Figure(
        name,
        f"{data}, LeNet-5",
        runs,
        bottom=0.9 if data == "mnist" else 0.7,
        searches=searches,
        claims=[judge],
    )
