"""What figures have in common: the methods as printed and ours, first epochs of two data sets, recurrent nets of two
sizes, LeNet-5."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reproduction import (
    Between,
    Claim,
    Compared,
    Entry,
    Figure,
    Finding,
    Results,
    Run,
    Search,
    compared,
    finding,
    over,
    runs_of,
    statement,
)

NETS = ("mlp-2x100", "mlp-2x500")
FIRST = range(1, 51)
"""The batches after which first epochs are evaluated."""
PRINTED, OURS = "as printed", "ours"
"""The panels of every net: the algorithms as printed beside Adam and SGD at the rates that the paper found, and the
library's own beside Adam and SGD at rates that are searched alike."""
ADAM, SGD = "adam, the paper's rate", "sgd, the paper's rate"
TRUNCATED = "am-adam, parallel sweep"
PUBLIC = "am-adam-printed, as in the public code"
"""With its means over units and a penalty whose gradient vanishes."""
BAYESIAN = {"trials": 32, "together": 16, "seeds": 2}
"""The size of searches over a first epoch or fewer passes than 50."""
LONG = {"trials": 16, "together": 16, "seeds": 2}
"""The size of searches over 50 epochs. Those of recurrent, convolutional and binary nets are grids, as in the paper."""
Runs = dict[tuple[str, str], Run]


def family(name: str) -> str:
    """The method of a curve, whether as printed or ours.

    >>> [family(name) for name in ("am-adam-printed", "am-adam", ADAM, PUBLIC)]
    ['am-adam', 'am-adam', 'adam', 'am-adam']
    """
    return name.split(",")[0].removesuffix("-printed")


def of_paper(*rates: float) -> dict[str, float]:
    """The learning rates that the paper found, by net."""
    return dict(zip(NETS, rates, strict=True))


def both(
    figure: str, printed: Sequence[Entry], ours: Sequence[Entry], nets: Sequence[str], **common: Any
) -> tuple[Runs, list[Search]]:
    """The runs of both panels of every net, and their searches."""
    runs: Runs = {}
    searches: list[Search] = []
    for net in nets:
        for panel, entries in ((PRINTED, printed), (OURS, ours)):
            made, found = runs_of(figure, entries, [net], panel, **common)
            runs, searches = runs | made, searches + found
    return runs, searches


def rivals(paper: Mapping[str, Mapping[str, float]], **run: Any) -> list[Entry]:
    """Adam and SGD at the rates that the paper found."""
    return [
        Entry("adam", run={"label": ADAM, **run}, paper=paper["adam"]),
        Entry("sgd", {"momentum": 0.0}, run={"label": SGD, **run}, paper=paper["sgd"]),
    ]


def printed_adam(search: Mapping[str, Any], **options: Any) -> Entry:
    space = {"lr": Between(1e-4, 3e-2), "code_lr": Between(0.03, 3.0)}
    return Entry("am-adam-printed", {"lr": 0.003, "code_lr": 0.1, **options}, space, search=search)


def printed_memory(search: Mapping[str, Any], name: str = "am-mem-printed", **entry: Any) -> Entry:
    options = {"lr": 0.1, "code_lr": 1.0, "mu": 0.01}
    space = {"lr": Between(0.01, 1.0), "code_lr": Between(0.03, 10.0), "mu": Between(1e-3, 0.1)}
    return Entry(name, options, space, search=search, **entry)


def printed_offline(search: Mapping[str, Any], run: Mapping[str, Any]) -> list[Entry]:
    """AM-Adam-off and AM-mem-off as printed. run: the parts in which they see the data, on which nothing depends."""
    space = {"lr": Between(1e-3, 0.3), "code_lr": Between(0.03, 3.0)}
    adam = Entry("am-adam-offline-printed", {"lr": 0.01, "code_lr": 0.1}, space, run, search)
    return [adam, printed_memory(search, "am-mem-offline-printed", run=run)]


def offline_runs(paper: Mapping[str, Mapping[str, float]], **run: Any) -> list[Entry]:
    """Our offline methods."""
    parts, search = {"batch_size": 10_000, **run}, {"trials": 12, "together": 6}
    names = ("am-adam-offline", "am-mem-fitted-offline")
    return [Entry(name, {"lr": 0.03}, {"lr": Between(3e-3, 0.3)}, parts, search, paper[name]) for name in names]


def first_epochs(
    figure: str,
    paper: Mapping[str, Mapping[str, float]],
    lr: tuple[float, Between],
    memory: tuple[float, Between],
    sgd: tuple[float, Between],
    **common: Any,
) -> tuple[Runs, list[Search]]:
    """AM-Adam, AM-mem, Adam and SGD in their first epoch, searched for after 50 batches. lr, memory, sgd: the first
    rate of a search and where it looks, of both Adams, AM-mem and SGD."""
    search = {**BAYESIAN, "run": {"limit": 10_000, "eval_batches": ()}}
    ours = [
        Entry("am-adam", {"lr": lr[0]}, {"lr": lr[1]}, search=search),
        Entry("am-mem", {"lr": memory[0]}, {"lr": memory[1]}, search=search),
        Entry("adam", {"lr": lr[0]}, {"lr": lr[1]}, search=search),
        Entry("sgd", {"lr": sgd[0], "momentum": 0.0}, {"lr": sgd[1]}, search=search),
    ]
    printed = [printed_adam(search), printed_memory(search), *rivals(paper)]
    return both(figure, printed, ours, NETS, **common)


def early(results: Results, runs: Runs, net: str, names: Iterable[str], batches: Iterable[int] = FIRST) -> Compared:
    """Mean accuracies over the first batches of runs on a net."""
    places = list(batches)
    about = f"{net}, mean over the first {places[-1]} batches"
    return over(results, [runs[net, name] for name in names], about, places)


def ends(results: Results, runs: Runs, net: str, names: Iterable[str], epoch: int = -1) -> Compared:
    """Accuracies of runs on a net after an epoch, the last one by default."""
    about = net if epoch == -1 else f"{net}, after {epoch} epochs"
    return compared(results, [runs[net, name] for name in names], about, epoch=epoch)


def outperformed(results: Results, runs: Runs, net: str, online: Sequence[str], offline: Sequence[str]) -> Finding:
    """Reproduced if every offline method is behind every online one by more than twice the standard error."""
    found = ends(results, runs, net, (*online, *offline))
    close = [(a, b) for a in online for b in found.not_ahead(a, offline)]
    return finding(found, reproduced=not close, because="; ".join(f"{a} is not ahead of {b}" for a, b in close))


def by_grid(lr: float, rates: Sequence[float], search: Mapping[str, Any]) -> list[Entry]:
    """AM-Adam, Adam and SGD, the rate of each chosen from a few."""
    adams = [Entry(name, {"lr": lr}, {"lr": rates}, search=search) for name in ("am-adam", "adam")]
    return [*adams, Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": (0.02, 0.05, 0.1, 0.2)}, search=search)]


def recurrent(name: str, units: int, rates: tuple[float, ...], paper: Mapping[str, float], **printed: Any) -> Figure:
    """An Elman net on MNIST, one pixel a step, 10 epochs: AM-Adam beside backprop through time. paper: the rates that
    it found for Adam and SGD. printed: the schedule of mu that it found."""
    net, grid = f"elman-{units}", {"together": 4, "run": {"epochs": 5}}
    as_printed = [
        Entry(
            "am-adam-printed",
            {"lr": 0.005, "code_lr": 1.0, "steps": 5, **printed},
            {"lr": (0.002, 0.005), "code_lr": (0.3, 3.0)},
            search=grid,
        ),
        *rivals({method: {net: lr} for method, lr in paper.items()}),
    ]
    same = {"data": "mnist-sequential", "epochs": 10, "batch_size": 1024, "seeds": 3}
    truncated = Entry("am-adam", {"lr": 0.005, "codes": "parallel"}, {"lr": rates}, {"label": TRUNCATED}, grid)
    runs, searches = both(name, as_printed, [*by_grid(0.005, rates, grid), truncated], [net], **same)

    def found(results: Results, epoch: int) -> tuple[Compared, Compared]:
        printed = compared(results, [runs[net, m] for m in ("am-adam-printed", ADAM, SGD)], net, epoch=epoch)
        ours = compared(results, [runs[net, m] for m in ("am-adam", "adam", "sgd")], OURS, epoch=epoch)
        return printed, ours

    @statement(
        f"d = {units}: AM-Adam is like Adam in the first epoch",
        "after one epoch the printed AM-Adam (or ours, beside a searched Adam) is not behind Adam by more than 0.02 or "
        "twice the standard error",
    )
    def like_adam(results: Results) -> Finding:
        printed, ours = found(results, 1)
        return finding(
            [printed, ours],
            reproduced=not printed.behind("am-adam-printed", [ADAM], 0.02),
            exceeded=not ours.behind("am-adam", ["adam"], 0.02),
            because="the printed AM-Adam starts slower",
        )

    @statement(
        f"d = {units}: AM-Adam is above SGD up to epoch 6",
        "the printed AM-Adam (or ours, beside a searched SGD) is above SGD after epochs 1, 3 and 6",
    )
    def above_sgd(results: Results) -> Finding:
        each = [found(results, epoch) for epoch in (1, 3, 6)]
        return finding(
            [group for pair in each for group in pair],
            reproduced=all(printed["am-adam-printed"] > printed[SGD] for printed, _ in each),
            exceeded=all(ours["am-adam"] > ours["sgd"] for _, ours in each),
            because="the printed AM-Adam is not above SGD at the paper's rate",
        )

    @statement(
        f"d = {units}: AM-Adam matches SGD afterwards",
        "after ten epochs the printed AM-Adam is within 0.02 of SGD; exceeded if ours, beside a searched SGD, is not "
        "behind it by more than twice the standard error",
    )
    def matches_sgd(results: Results) -> Finding:
        printed, ours = found(results, 10)
        apart = printed["am-adam-printed"] - printed[SGD]
        return finding(
            [printed, ours],
            reproduced=abs(apart) <= 0.02,
            exceeded=not ours.behind("am-adam", ["sgd"]),
            because=f"the printed AM-Adam ends {apart:+.3f} from SGD at the paper's rate",
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


def lenet(name: str, data: str, increment: float) -> Figure:
    """LeNet-5, 10 epochs: AM-Adam, Adam and SGD. increment: of mu with each batch, as the paper found it."""
    net, early = "lenet5", (25, 50, 100, 200)
    mu = {"mu": 0.01, "increment": increment, "growth": 1.1, "maximum": 1.5, "code_steps": 1}
    space = {"lr": (2e-5, 2e-4, 2e-3, 2e-2), "code_lr": (0.1, 1.0)}
    printed = [
        Entry("am-adam-printed", {"lr": 0.002, "code_lr": 1.0, **mu}, space, search={"together": 8}),
        Entry(
            "am-adam-printed",
            {"lr": 0.002, "code_lr": 1.0, "mean": True, "anchored": False, **mu},
            space,
            {"label": PUBLIC},
            {"together": 8},
        ),
        *rivals({"adam": {net: 0.002}, "sgd": {net: 0.02}}),
    ]
    ours = by_grid(0.001, (5e-4, 1e-3, 2e-3), {"together": 4})
    runs, searches = both(name, printed, ours, [net], data=data, epochs=10, batch_size=128, eval_batches=early)

    def found(results: Results) -> tuple[Compared, Compared]:
        printed = compared(results, [runs[net, m] for m in ("am-adam-printed", PUBLIC, ADAM, SGD)], data, epoch=10)
        ours = compared(results, [runs[net, m] for m in ("am-adam", "adam", "sgd")], OURS, epoch=10)
        return printed, ours

    @statement(
        f"{data}: AM-Adam clearly above SGD",
        "after ten epochs the printed AM-Adam (or ours, beside a searched SGD) is ahead of SGD by more than twice the "
        "standard error",
    )
    def above_sgd(results: Results) -> Finding:
        printed, ours = found(results)
        return finding(
            [printed, ours],
            reproduced=not printed.not_ahead("am-adam-printed", [SGD]),
            exceeded=not ours.not_ahead("am-adam", ["sgd"]),
            because="SGD ends level: its best rate in the paper's grid was the largest, and larger ones are better",
        )

    @statement(
        f"{data}: AM-Adam somewhat below Adam",
        "after ten epochs the printed AM-Adam is below Adam; exceeded if ours is level with a searched Adam, within "
        "twice the standard error, or above",
    )
    def below_adam(results: Results) -> Finding:
        printed, ours = found(results)
        return finding(
            [printed, ours],
            reproduced=printed["am-adam-printed"] < printed[ADAM],
            exceeded=not ours.behind("am-adam", ["adam"]),
            because="AM-Adam is not below Adam",
        )

    text = "LeNet-5: AM-Adam clearly above SGD, somewhat below Adam (MNIST and Fashion-MNIST)"
    return Figure(
        name,
        f"{data}, LeNet-5",
        list(runs.values()),
        bottom=0.9 if data == "mnist" else 0.7,
        family=family,
        level=True,
        searches=searches,
        claims=[Claim("C13", text, "curves, no numbers", [above_sgd, below_adam])],
    )
