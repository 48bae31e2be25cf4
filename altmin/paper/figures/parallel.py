"""Weights of all blocks at once: every block's update follows from its own residual."""

from statistics import mean

from altmin.paper.reproduce import Figure, Finding, Results, WeightsInParallel, claim

RUNS = [
    WeightsInParallel("all blocks at once", "mlp, 512 units a layer, batch 200", f"mlp-{depth}x512", depth)
    for depth in (2, 5, 10, 20, 50)
]


@claim("C18", "weight updates run in parallel across layers", "no numbers")
def at_once(results: Results) -> Finding:
    rows = {run.model: results.all(run) for run in RUNS}
    gains = {net: mean(row["in_turn"] / row["at_once"] for row in found) for net, found in rows.items()}
    off = max(row["difference"] for found in rows.values() for row in found)
    words = ", ".join(f"{net} {gain:.2f}" for net, gain in gains.items())
    reasons = ["the gradients depend on the order"] if off > 1e-6 else []
    reasons += ["all blocks at once are not faster than in turn"] if gains[RUNS[-1].model] <= 1.1 else []
    text = f"gradients in any order differ by {off:.0e}; speed-up with all blocks at once: {words}"
    return Finding(text, not reasons, None, " and ".join(reasons))


FIGURE = Figure(
    name="parallel",
    title="The weight updates of all blocks at once, against one after the other",
    runs=RUNS,
    axes=("hidden layers",),
    minutes=1,
    measure="times as fast",
    log="x",
    claims=[at_once],
)
