"""Figure 8: a net with a sign in its first hidden layer. AM without a derivative (a search for flips) and with the
straight-through estimate inside the local step, target propagation, straight-through backprop, and as a control the
same nets with the first layer frozen."""

from altmin.reproduce import Claim, Entry, Figure, Finding, Mark, Results, compared, finding, runs_of

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


def sooner(results: Results) -> Finding:
    end = compared(results, list(RUNS.values()), "accuracy after 20 epochs", epoch=-1)
    ours, frozen = end["AM, discrete search"], end["AM, first layer frozen"]
    against = {
        "AM's error stays above 2%": ours < 0.98,
        "the frozen control is as good": ours <= frozen + 0.002,
        "target propagation reaches AM's error in 20 epochs, too": end["target propagation"] >= ours - 0.001,
    }
    return finding([end], against)


FIGURE = Figure(
    name="fig8",
    title="MNIST, binary net: sign, then tanh",
    runs=list(RUNS.values()),
    axes=("epochs", "batches", "seconds"),
    minutes=8,
    searches=SEARCHES,
    marks=[Mark(f"mnist, {NET}", EPOCHS, 0.98, "2% error, what 0.2 must mean")],
    claims=[
        Claim(
            "C14",
            "binary net: AM reaches in under 20 epochs the error for which target propagation needs about 200",
            "0.2 error (2% meant)",
            sooner,
        )
    ],
)
