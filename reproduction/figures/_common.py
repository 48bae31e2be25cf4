"""What figures have in common: the methods as printed and ours, their rivals, and how their results are compared."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reproduction import Between, Compared, Entry, Results, Run, Search, Statement, compared, over, runs_of, statement

NETS = ("mlp-2x100", "mlp-2x500")
FIRST = range(1, 51)
"""The batches after which first epochs are evaluated."""
PRINTED, OURS = "as printed", "ours"
"""The panels of every net: the algorithms as printed beside Adam and SGD at the rates that the paper found, and the
library's own beside Adam and SGD at rates that are searched alike."""
ADAM, SGD = "adam, the paper's rate", "sgd, the paper's rate"
BAYESIAN = {"trials": 32, "together": 16, "seeds": 2}
"""The size of searches over a first epoch or fewer passes than 50."""
LONG = {"trials": 16, "together": 16, "seeds": 2}
"""The size of searches over 50 epochs. Those of recurrent, convolutional and binary nets are grids, as in the paper."""
Runs = dict[tuple[str, str], Run]


def family(name: str) -> str:
    """Return the method of a curve, whether as printed or ours.

    >>> [family(name) for name in ("am-adam-printed", "am-adam", ADAM)]
    ['am-adam', 'am-adam', 'adam']
    """
    return name.split(",")[0].removesuffix("-printed")


def of_paper(*rates: float) -> dict[str, float]:
    """Return the learning rates that the paper found, by net."""
    return dict(zip(NETS, rates, strict=True))


def both(
    figure: str, printed: Sequence[Entry], ours: Sequence[Entry], nets: Sequence[str], **common: Any
) -> tuple[Runs, list[Search]]:
    """Return the runs of both panels of every net, and their searches."""
    runs: Runs = {}
    searches: list[Search] = []
    for net in nets:
        for panel, entries in ((PRINTED, printed), (OURS, ours)):
            made, found = runs_of(figure, entries, [net], panel, **common)
            runs, searches = runs | made, searches + found
    return runs, searches


def rivals(paper: Mapping[str, Mapping[str, float]]) -> list[Entry]:
    """Return Adam and SGD at the rates that the paper found."""
    return [
        Entry("adam", run={"label": ADAM}, paper=paper["adam"]),
        Entry("sgd", {"momentum": 0.0}, run={"label": SGD}, paper=paper["sgd"]),
    ]


def printed_adam(search: Mapping[str, Any]) -> Entry:
    space = {"lr": Between(1e-4, 3e-2), "code_lr": Between(0.03, 3.0)}
    return Entry("am-adam-printed", {"lr": 0.003, "code_lr": 0.1}, space, search=search)


def printed_memory(search: Mapping[str, Any], name: str = "am-mem-printed", **entry: Any) -> Entry:
    options = {"lr": 0.1, "code_lr": 1.0, "mu": 0.01}
    space = {"lr": Between(0.01, 1.0), "code_lr": Between(0.03, 10.0), "mu": Between(1e-3, 0.1)}
    return Entry(name, options, space, search=search, **entry)


def printed_offline(search: Mapping[str, Any], run: Mapping[str, Any]) -> list[Entry]:
    """Return AM-Adam-off and AM-mem-off as printed. run: the parts in which they see the data, on which nothing
    depends."""
    space = {"lr": Between(1e-3, 0.3), "code_lr": Between(0.03, 3.0)}
    adam = Entry("am-adam-offline-printed", {"lr": 0.01, "code_lr": 0.1}, space, run, search)
    return [adam, printed_memory(search, "am-mem-offline-printed", run=run)]


def offline_runs(paper: Mapping[str, Mapping[str, float]], **run: Any) -> list[Entry]:
    """Return our offline methods."""
    parts, search = {"batch_size": 10_000, **run}, {"trials": 12, "together": 6}
    names = ("am-adam-offline", "am-mem-fitted-offline")
    return [Entry(name, {"lr": 0.03}, {"lr": Between(3e-3, 0.3)}, parts, search, paper[name]) for name in names]


def first_epochs(
    figure: str,
    paper: Mapping[str, Mapping[str, float]],
    adam: tuple[float, Between],
    sgd: tuple[float, Between],
    **common: Any,
) -> tuple[Runs, list[Search]]:
    """Return AM-Adam, AM-mem, Adam and SGD in their first epoch, searched for after 50 batches. adam, sgd: the first
    rate of a search and where it looks, of SGD and of all others."""
    search = {**BAYESIAN, "run": {"limit": 10_000, "eval_batches": ()}}
    ours = [Entry(name, {"lr": adam[0]}, {"lr": adam[1]}, search=search) for name in ("am-adam", "am-mem", "adam")]
    ours.append(Entry("sgd", {"lr": sgd[0], "momentum": 0.0}, {"lr": sgd[1]}, search=search))
    printed = [printed_adam(search), printed_memory(search), *rivals(paper)]
    return both(figure, printed, ours, NETS, **common)


def by_grid(lr: float, rates: Sequence[float], search: Mapping[str, Any]) -> list[Entry]:
    """Return AM-Adam, Adam and SGD, the rate of each chosen from a few."""
    adams = [Entry(name, {"lr": lr}, {"lr": rates}, search=search) for name in ("am-adam", "adam")]
    return [*adams, Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": (0.02, 0.05, 0.1, 0.2)}, search=search)]


def early(runs: Runs, net: str, *groups: Iterable[str], batches: int = 50) -> Callable[[Results], list[Compared]]:
    """Return what compares the mean accuracies over the first batches, of each group of names on a net."""
    about = f"{net}, mean over the first {batches} batches"
    return lambda results: [
        over(results, [runs[net, n] for n in each], about, range(1, batches + 1)) for each in groups
    ]


def ends(runs: Runs, net: str, *groups: Iterable[str], epoch: int = -1) -> Callable[[Results], list[Compared]]:
    """Return what compares the accuracies after an epoch, by default the last, of each group of names on a net."""
    about = net if epoch == -1 else f"{net}, after {epoch} epochs"
    return lambda results: [compared(results, [runs[net, n] for n in each], about, epoch=epoch) for each in groups]


def beside(method: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Return the names of two groups: a method as printed and its rivals at the paper's rates; ours and searched
    rivals."""
    return (f"{method}-printed", ADAM, SGD), (method, "adam", "sgd")


def outperformed(
    runs: Runs, net: str, text: str, criterion: str, online: Sequence[str], offline: Sequence[str]
) -> Statement:
    """Return the statement that every offline method is behind every online one by more than twice the standard
    error."""

    def close(found: Compared) -> list[str]:
        return [f"{a} is not ahead of {b}" for a in online for b in found.not_ahead(a, offline)]

    return statement(
        f"{net}: {text}",
        criterion,
        ends(runs, net, (*online, *offline)),
        lambda found: not close(found),
        because=lambda found: "; ".join(close(found)),
        undecided=lambda found: not any(found.behind(name, offline) for name in online),
    )
