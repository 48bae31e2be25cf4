"""Figure 8: a net with a sign in its first hidden layer. AM without a derivative (a search for flips) and with the
straight-through estimate inside the local step, target propagation, straight-through backprop, and as a control the
same nets with the first layer frozen."""

from statistics import mean

from altmin.paper.reproduce import Entry, Figure, Finding, Mark, Results, claim, compared, finding, runs_of

NET, EPOCHS = "binary-500", 20
RATES, GRID = (5e-4, 1e-3, 2e-3, 4e-3), {"together": 4, "run": {"epochs": 10}}
ESTIMATE, FROZEN = {"codes": "straight-through"}, {"freeze_first": True}
ENTRIES = [
    Entry("am-adam", {"lr": 0.002}, {"lr": RATES}, {"label": "AM, discrete search"}, GRID),
    Entry("am-adam", {"lr": 0.002, **ESTIMATE}, run={"label": "AM, straight-through"}),
    Entry("am-adam", {"lr": 0.002}, {"lr": RATES}, {"label": "AM, first layer frozen", **FROZEN}, GRID),
    Entry("dtp", {"lr": 0.001}, {"lr": RATES[:3]}, {"label": "target propagation"}, {**GRID, "together": 3}),
    Entry(
        "straight-through",
        {"lr": 0.001},
        {"lr": RATES[:3]},
        {"label": "straight-through backprop"},
        {**GRID, "together": 3},
    ),
]
RUNS, SEARCHES = runs_of("fig8", ENTRIES, [NET], epochs=EPOCHS, schedule="cosine")


@claim(
    "C14",
    "binary net: AM reaches in under 20 epochs the error for which target propagation needs about 200",
    "0.2 error (2% meant)",
)
def sooner(results: Results) -> Finding:
    runs = {run.name: run for run in RUNS.values()}
    end = compared(results, runs.values(), f"after {EPOCHS} epochs", epoch=-1)
    ours, target = runs["AM, discrete search"], end["target propagation"]
    level = [n for n in range(1, EPOCHS + 1) if mean(results.values(ours, epoch=n)) >= target]
    against = {
        "AM's error stays above 2%": end[ours.name] < 0.98,
        "the frozen control is as good": end[ours.name] <= end["AM, first layer frozen"] + 0.002,
        f"AM reaches the accuracy of target propagation after {min(level, default=0)} of {EPOCHS} epochs, not after a "
        "tenth of them": not level or min(level) > EPOCHS / 10,
    }
    return finding([end], against)


FIGURE = Figure(
    name="fig8",
    title="MNIST, binary net: sign, then tanh",
    runs=list(RUNS.values()),
    axes=("epochs", "batches", "seconds"),
    minutes=10,
    searches=SEARCHES,
    bottom=0.94,
    marks=[Mark(f"mnist, {NET}", EPOCHS, 0.98, "2% error, what 0.2 must mean")],
    claims=[sooner],
)
