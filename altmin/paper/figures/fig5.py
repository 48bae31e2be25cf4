"""Figure 5: HIGGS, one pass of the whole file; of a partial file as many batches as make 25 passes over its rows."""

from typing import Any

from altmin.paper.reproduce import Entry, Figure, Finding, Mark, Results, Run, claim, compared, finding, runs_of

NET = "mlp-1x300"
LEVELS = (10, 25, 50, 100, 200, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 10_000, 20_000, 40_000)
ROWS = 39_621
"""Training rows of the partial file that was at hand."""
RATES = (3e-4, 1e-3, 3e-3)
PART: dict[str, Any] = {"limit": ROWS, "epochs": 25, "title": f"higgs, {ROWS:,} rows", "eval_batches": LEVELS[:14]}
WHOLE: dict[str, Any] = {"whole": True, "epochs": 1, "seeds": 1, "title": "higgs, whole file", "eval_batches": LEVELS}
GRID = {"seeds": 2, "together": 3, "run": {"limit": ROWS, "epochs": 25, "eval_batches": (), "whole": False}}
ENTRIES = [
    Entry("am-adam", {"lr": 0.001}, {"lr": RATES}, search=GRID, paper={NET: 0.001}),
    Entry("am-mem-fitted", {"lr": 0.001}, {"lr": RATES, "rate": (30.0, 300.0)}, search={**GRID, "together": 6}),
    Entry("adam", {"lr": 0.001}, {"lr": RATES}, search=GRID, paper={NET: 0.001}),
    Entry("sgd", {"lr": 0.05, "momentum": 0.0}, {"lr": (0.02, 0.05, 0.1, 0.2)}, search=GRID, paper={NET: 0.05}),
]
ALL, SEARCHES = runs_of("fig5", ENTRIES, [NET], data="higgs", **WHOLE)
SOME, _ = runs_of("fig5", ENTRIES, [NET], data="higgs", **PART)


def known(results: Results) -> tuple[dict[tuple[str, str], Run], str]:
    """The runs on the whole file where they were made, else those on the partial one, and what to say of them."""
    made = all(not results.missing(run) for run in ALL.values())
    return (ALL, "whole file") if made else (SOME, f"partial file, {ROWS:,} training rows, 25 passes")


@claim("C10", "HIGGS: 0.64, ADMM's figure, soon", "AM-Adam in 1,000 batches, SGD and Adam in 2,000")
def quickly(results: Results) -> Finding:
    runs, about = known(results)
    sooner = compared(results, [runs[NET, "am-adam"]], f"{about}, after 1,000 batches", batch=1_000)
    later = compared(results, [runs[NET, m] for m in ("sgd", "adam")], "after 2,000", batch=2_000)
    against = {"AM-Adam stays below 0.64": sooner["am-adam"] < 0.64}
    against |= {f"{m} stays below 0.64": later[m] < 0.64 for m in later.values}
    return finding([sooner, later], against)


@claim("C11", "HIGGS: AM-Adam near SGD and Adam", "0.71, 0.71, 0.72 after the epoch; AM-mem 0.61")
def at_the_end(results: Results) -> Finding:
    runs, about = known(results)
    end = compared(results, list(runs.values()), f"{about}, at the end", epoch=-1)
    stated = {"am-adam": 0.71, "sgd": 0.71, "adam": 0.72}
    against = {f"{m} ends below {level - 0.015:.3f}": end[m] < level - 0.015 for m, level in stated.items()}
    against["AM-Adam is more than 0.005 behind Adam"] = end["am-adam"] < end["adam"] - 0.005
    against["AM-mem ends higher than 0.62"] = end["am-mem-fitted"] > 0.62
    return finding([end], against)


FIGURE = Figure(
    name="fig5",
    title="HIGGS, one hidden layer of 300",
    runs=[*SOME.values(), *ALL.values()],
    axes=("batches", "epochs", "seconds"),
    searches=SEARCHES,
    marks=[
        Mark("higgs, whole file", 20_000, 0.70, "AM-Adam 0.70"),
        Mark("higgs, whole file", 50_000, 0.72, "Adam 0.72"),
        *(Mark(panel, 1_000, 0.64, "AM-Adam 0.64") for panel in (PART["title"], WHOLE["title"])),
    ],
    claims=[quickly, at_the_end],
)
