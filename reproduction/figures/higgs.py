"""Figure 5: HIGGS, one pass of the whole file; of a partial file as many batches as make 25 passes over its rows."""

from collections.abc import Callable
from typing import Any

from reproduction import Between, Claim, Compared, Entry, Figure, Mark, Results, Statement, compared, runs_of, statement
from reproduction.figures._common import BAYESIAN, family, printed_adam, printed_memory

NET = "mlp-1x300"
LEVELS = (10, 25, 50, 100, 200, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 10_000, 20_000, 40_000)
ROWS = 39_621
"""Training rows of the partial file that was at hand."""
LR = {"lr": Between(1e-4, 1e-2)}
PART: dict[str, Any] = {"limit": ROWS, "epochs": 25, "title": f"higgs, {ROWS:,} rows", "eval_batches": LEVELS[:14]}
WHOLE: dict[str, Any] = {"whole": True, "epochs": 1, "seeds": 1, "title": "higgs, whole file", "eval_batches": LEVELS}
SEARCH = {**BAYESIAN, "run": {"limit": ROWS, "epochs": 25, "eval_batches": (), "whole": False}}
ENTRIES = [
    Entry("am-adam", {"lr": 0.001}, LR, search=SEARCH, paper={NET: 0.001}),
    printed_adam(SEARCH),
    Entry("am-mem", {"lr": 0.001}, LR, search=SEARCH),
    printed_memory(SEARCH),
    Entry("adam", {"lr": 0.001}, LR, search=SEARCH, paper={NET: 0.001}),
    Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": Between(1e-2, 1.0)}, search=SEARCH, paper={NET: 0.05}),
]
ALL, SEARCHES = runs_of("fig5", ENTRIES, [NET], data="higgs", **WHOLE)
SOME, _ = runs_of("fig5", ENTRIES, [NET], data="higgs", **PART)


def is_whole(results: Results) -> bool:
    """Return whether the runs on the whole file were made; else those on the partial one are judged."""
    return all(not results.missing(run) for run in ALL.values())


def part(results: Results) -> str:
    """Return what is said behind a claim that was measured on a part of the data."""
    return "" if is_whole(results) else " (part of the data)"


def known(names: tuple[str, ...], batch: int | None = None) -> Callable[[Results], list[Compared]]:
    """Return what compares the runs of these names after a batch, or at the end."""

    def groups(results: Results) -> list[Compared]:
        whole = is_whole(results)
        about = "whole file" if whole else f"partial file, {ROWS:,} training rows, 25 passes"
        at = f"{about}, at the end" if batch is None else f"{about}, after {batch:,}"
        runs = [(ALL if whole else SOME)[NET, name] for name in names]
        return [compared(results, runs, at, batch=batch, epoch=-1 if batch is None else None)]

    return groups


def reaches(name: str, others: tuple[str, ...], batch: int) -> Statement:
    """others: the names of its runs; the first is the algorithm that the paper prints."""
    return statement(
        f"{name} reaches 0.64, ADMM's figure, within {batch:,} batches",
        f"after {batch:,} batches the mean test accuracy of {others[0]} is at least 0.64"
        + ("; ours: likewise" if others[1:] else ""),
        known(others, batch),
        lambda found: found[others[0]] >= 0.64,
        (lambda found: found[others[1]] >= 0.64) if others[1:] else None,
        f"{others[0]} needs more batches",
    )


def level(name: str, others: tuple[str, ...], stated: float) -> Statement:
    def because(found: Compared) -> str:
        missing = f", with {ROWS:,} of 10.5 million rows" if found.about.startswith("partial") else ""
        return f"{others[0]} ends {found[others[0]] - stated:+.3f} from it{missing}"

    return statement(
        f"{name} ends at {stated}",
        f"at the end the mean of {others[0]} is within 0.015 of {stated}" + ("; ours: higher" if others[1:] else ""),
        known(others),
        lambda found: abs(found[others[0]] - stated) <= 0.015,
        (lambda found: found[others[1]] > stated) if others[1:] else None,
        because,
    )


def near(name: str) -> Callable[[Compared], bool]:
    return lambda end: not end.behind(name, ["adam"], 0.005) and min(end[name], end["adam"]) > end["sgd"]


close = statement(
    "Adam and AM-Adam perform very closely, both above SGD",
    "at the end the printed AM-Adam (and ours) is behind Adam by no more than 0.005 or twice the standard error, and "
    "both are above SGD",
    known(("am-adam-printed", "am-adam", "adam", "sgd")),
    near("am-adam-printed"),
    near("am-adam"),
    "the printed AM-Adam is behind Adam",
)
AM_ADAM, AM_MEM = ("am-adam-printed", "am-adam"), ("am-mem-printed", "am-mem")
FIG5 = Figure(
    name="fig5",
    title="HIGGS, one hidden layer of 300",
    runs=[*SOME.values(), *ALL.values()],
    axes=("batches", "epochs", "seconds"),
    searches=SEARCHES,
    family=family,
    marks=[
        Mark("higgs, whole file", 20_000, 0.70, "AM-Adam 0.70"),
        Mark("higgs, whole file", 50_000, 0.72, "Adam 0.72"),
        *(Mark(panel, 1_000, 0.64, "AM-Adam 0.64") for panel in (PART["title"], WHOLE["title"])),
    ],
    claims=[
        Claim(
            "C10",
            "HIGGS: 0.64, ADMM's figure, soon",
            "AM-Adam in 1,000 batches, SGD and Adam in 2,000",
            [reaches("AM-Adam", AM_ADAM, 1_000), reaches("SGD", ("sgd",), 2_000), reaches("Adam", ("adam",), 2_000)],
            part,
        ),
        Claim(
            "C11",
            "HIGGS: AM-Adam near SGD and Adam, AM-mem lower",
            "0.71, 0.71, 0.72 after the epoch; AM-mem 0.61",
            [
                *(level("AM-Adam", AM_ADAM, 0.71), level("SGD", ("sgd",), 0.71), level("Adam", ("adam",), 0.72)),
                *(level("AM-mem", AM_MEM, 0.61), close),
            ],
            part,
        ),
    ],
)
FIGURES = [FIG5]
