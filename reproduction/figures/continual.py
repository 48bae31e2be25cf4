"""Continual learning: split and permuted MNIST, one pass, with the co-activation memory kept and with its rivals.

Settings were chosen on validation data (measurements/continual.py), for each learner those with the best average
accuracy after the last task. Replay's buffer has the bytes of AM-mem's memory.
"""

from statistics import mean
from typing import Any

from reproduction import Claim, Figure, Finding, Results, Statement
from reproduction.continual import Stream
from reproduction.results import deviation

KEPT, FADING, PRINTED = "AM-mem, memory kept", "AM-mem, memory fading", "AM-mem, as printed"
OUTPUT, RIDGE, ANALYTIC = "AM-mem, output remembered", "ridge, random features", "analytic, first task learnt"
GAUSS_NEWTON = "Gauss-Newton, memory kept"
FALLING, RANDOM = "SGD, rate falling", "Adam, random hidden layers"
MEMORY = {"lr": 1e-4, "rate": 30.0, "damping": 30.0, "steps": None}
KALMAN = {"forget": 1.0, "start": 0.3}
LEARNERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    KEPT: (
        "am-mem-fitted",
        {**MEMORY, "forget": 1.0, "damping": 10.0},
        {**MEMORY, "forget": 1.0, "damping": 10.0, "rate": 100.0},
    ),
    PRINTED: (
        "am-mem-printed",
        {"lr": 0.01, "code_lr": 3.0, "mu": 0.003},
        {"lr": 0.1, "code_lr": 3.0, "mu": 0.01},
    ),
    OUTPUT: ("remembering", {"rate": 5.0, "width": 700}, {"rate": 100.0, "width": 1000}),
    GAUSS_NEWTON: ("gauss-newton", {**KALMAN, "floor": 0.1}, {**KALMAN, "floor": 0.01}),
    FADING: ("am-mem-fitted", {**MEMORY, "forget": 0.9}, {**MEMORY, "forget": 0.9}),
    "AM-Adam": ("am-adam", {"lr": 3e-5}, {"lr": 3e-4}),
    "Adam": ("adam", {"lr": 3e-5}, {"lr": 3e-4}),
    "SGD": ("sgd", {"lr": 1e-4, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.0}),
    FALLING: ("falling-sgd", {"lr": 0.1, "batches": 3.0}, {"lr": 0.3, "batches": 100.0}),
    RANDOM: ("adam", {"lr": 3e-3}, {"lr": 1e-3}),
    "replay": ("replay", {"lr": 3e-3}, {"lr": 3e-3}),
    "EWC": ("ewc", {"strength": 1e4, "lr": 1e-4}, {"strength": 10.0, "lr": 1e-3}),
    "streaming LDA": ("slda", {"shrinkage": 0.5}, {"shrinkage": 0.01}),
    RIDGE: ("ridge", {}, {}),
    ANALYTIC: ("analytic", {}, {}),
}
"""By their names in the figure: the learner, and its options on split and on permuted MNIST."""
NETS = {"streaming LDA": "linear", RIDGE: "mlp-1x1180", ANALYTIC: "mlp-1x1180"}
"""Nets other than mlp-2x100. With 1,180 features the output's memory has the bytes of AM-mem's hidden ones."""
SEQUENCES = ("split", "permuted")
RUNS = {
    (sequence, name): Stream(
        *(learner, sequence, options, NETS.get(name, "mlp-2x100")),
        batch_size=10 if name == GAUSS_NEWTON else 200,
        seeds=3 if name == GAUSS_NEWTON else 5,
        freeze_hidden=name == RANDOM,
        limit=10_000 if sequence == "permuted" else None,
        label=name,
    )
    for name, (learner, *both) in LEARNERS.items()
    for sequence, options in zip(SEQUENCES, both, strict=True)
}
LEARNERS_OF_TASKS = (OUTPUT, GAUSS_NEWTON, "replay", "EWC", "streaming LDA", RIDGE, ANALYTIC)
MEASURES = ("average_accuracy", "forgetting")


def values(results: Results, run: Stream, measure: str) -> list[float]:
    """Return a measure of every seed; one that diverged has learnt nothing. KeyError if a seed has not been made."""
    return [row.get(measure, 0.0) for row in results.all(run)]


def lessens(sequence: str) -> Statement:
    def judge(results: Results) -> Finding:
        found = {name: [values(results, RUNS[sequence, name], each) for each in MEASURES] for name in LEARNERS}
        means = {name: (mean(high), mean(low)) for name, (high, low) in found.items()}
        shown = ", ".join(f"{name} {high:.3f} ({low:.3f})" for name, (high, low) in means.items())
        kept = {name: results.of(RUNS[sequence, name])[0]["bytes"]["memory"] for name in (KEPT, *LEARNERS_OF_TASKS)}
        sizes = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in kept.items())
        text = f"average accuracy (forgetting): {shown}; megabytes kept: {sizes}"
        spread = max(deviation(each) for both in found.values() for each in both)

        def better(name: str) -> bool:
            others = [means[each] for each in ("AM-Adam", "Adam", "SGD")]
            return all(means[name][0] > accuracy and means[name][1] < lost for accuracy, lost in others)

        why = "a learner without memory is as accurate as the printed AM-mem, or forgets as little"
        verdict, because = ("reproduced", "") if better(PRINTED) else ("not reproduced", why)
        return Finding(text, verdict, because, spread, better(KEPT))

    return Statement(
        f"{sequence} MNIST: co-activation memory lessens catastrophic forgetting",
        "AM-mem as printed ends with a higher average accuracy and a lower forgetting than each of AM-Adam, Adam and "
        "SGD; ours, with the memory kept, does",
        judge,
    )


TEXT = "hypothesis: co-activation memory lessens catastrophic forgetting"
CONTINUAL = Figure(
    name="continual",
    title="Tasks one after the other: average accuracy on the tasks seen",
    runs=list(RUNS.values()),
    axes=("tasks",),
    minutes=8,
    first=(KEPT, PRINTED, "Adam", "replay", "EWC", "ridge, random features"),
    claims=[Claim("C19", TEXT, "a hypothesis, no numbers", list(map(lessens, SEQUENCES)))],
)
FIGURES = [CONTINUAL]
