"""The figures of docs/discrete.md: `python experiments/discrete.py accuracy`, `... speed`, `... table`, `... picture`.

`accuracy` tries learning rates and amplifications on validation data and reports every case on test data, seeds 0 to 2,
in benchmarks/discrete-accuracy.jsonl; --jobs N runs N at once. `speed` lets the two code solvers take turns at
training steps and keeps the ratio of their times in benchmarks/discrete-speed.json. `table` and `picture` write into
docs/ and train nothing.
"""

import itertools
import json
import statistics
import sys
import time
import warnings

import torch
from common import HERE, SEEDS, Row, fill, jobs_given, parallel, ratio, read, spread, table, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

import altmin
from altmin.cli import output
from altmin.cli.plot import COLOURS
from altmin.training import fit

ACCURACY, SPEED = HERE / "benchmarks/discrete-accuracy.jsonl", HERE / "benchmarks/discrete-speed.json"
DOCUMENT, PICTURE = HERE / "docs/discrete.md", HERE / "docs/images/discrete.png"
NETS = {
    "binary-500": ("784-500-500-10: sign, tanh", (altmin.Sign, nn.Tanh)),
    "staircase-500": ("784-500-500-10: 2-bit staircase, tanh", (lambda: altmin.Staircase(4), nn.Tanh)),
    "all-sign": ("784-500-500-10: sign, sign", altmin.Sign),
    "wrapped": ("784-500-500-10: sign, tanh", (lambda: altmin.StraightThrough(altmin.Sign()), nn.Tanh)),
}
LR = 0.002
"""Within 0.001 of the best of TUNING's for both solvers."""
CASES: list[Row] = [
    {"net": "binary-500", "codes": "straight-through", "lr": LR, "epochs": 10},
    {"net": "binary-500", "codes": "discrete", "lr": LR, "epochs": 10},
    {"net": "binary-500", "codes": "discrete", "frozen": True, "lr": LR, "epochs": 10},
    {"net": "binary-500", "codes": "straight-through", "lr": LR, "epochs": 20},
    {"net": "binary-500", "codes": "discrete", "lr": LR, "epochs": 20},
    {"net": "binary-500", "codes": "discrete", "frozen": True, "lr": LR, "epochs": 20},
    {"net": "staircase-500", "codes": "straight-through", "lr": LR, "epochs": 6},
    {"net": "staircase-500", "codes": "discrete", "lr": LR, "epochs": 6},
    {"net": "staircase-500", "codes": "discrete", "frozen": True, "lr": LR, "epochs": 6},
    {"net": "all-sign", "codes": "straight-through", "lr": LR, "epochs": 10},
    {"net": "all-sign", "codes": "discrete", "lr": LR, "epochs": 10},
    {"net": "all-sign", "codes": "discrete", "frozen": True, "lr": LR, "epochs": 10},
    {"net": "wrapped", "codes": "backprop", "lr": 0.001, "epochs": 10},
    {"net": "binary-500", "codes": "backprop", "frozen": True, "lr": 0.001, "epochs": 10},
    {"net": "binary-500", "codes": "discrete", "options": {"residual": "squared"}, "lr": LR, "epochs": 10},
]
TUNING: list[Row] = [
    *({"net": "binary-500", "codes": "straight-through", "lr": lr, "epochs": 10} for lr in (0.001, 0.002, 0.004)),
    *(
        {"net": "binary-500", "codes": "discrete", "options": {"amplify": a}, "lr": lr, "epochs": 10}
        for a, lr in itertools.product((1.0, 2.0, 4.0), (0.001, 0.002))
    ),
    {"net": "binary-500", "codes": "discrete", "options": {"amplify": 2.0}, "lr": 0.004, "epochs": 10},
    {"net": "binary-500", "codes": "discrete", "options": {"sweeps": 4}, "lr": LR, "epochs": 10},
    *({"net": "wrapped", "codes": "backprop", "lr": lr, "epochs": 10} for lr in (0.001, 0.002)),
]


def build(case: Row, seed: int) -> altmin.methods.Method:
    """The method of a case, on a net of its own."""
    torch.manual_seed(seed)
    model = altmin.models.binary_mlp(activations=NETS[case["net"]][1])
    if case.get("frozen"):
        altmin.models.freeze_first(model)
    if case["codes"] == "backprop":
        return altmin.methods.create("adam", model, lr=case["lr"])
    solvers = {"discrete": altmin.DiscreteCodes, "straight-through": altmin.StraightThroughCodes}
    codes = solvers[case["codes"]](**case.get("options", {}))
    return altmin.methods.create("am-adam", model, lr=case["lr"], codes=codes)


def train(case: Row, seed: int, measured_on: str = "test") -> Row:
    """One run with a rate that falls to zero along a cosine; the accuracy after each epoch, and at the end."""
    samples, measured = altmin.data.load("mnist", "train"), altmin.data.load("mnist", measured_on)
    method = build(case, seed)
    history = fit(method, samples, measured, epochs=case["epochs"], batch_size=200, seed=seed, schedule="cosine")
    curve = [row["test_accuracy"] for row in history.epochs]
    row = {"seed": seed, "measured_on": measured_on, "rows": len(samples[0])}
    return row | {"schedule": "cosine", "curve": curve, "accuracy": curve[-1]}


def accuracy(jobs: int = 1) -> None:
    """All runs; those already in the file are kept, so that it can be stopped and go on."""
    rows = read(ACCURACY) if ACCURACY.exists() else [{"environment": output.environment(torch.device("cpu"))}]
    tuning = [({"tuning": True} | case, 0, "validation") for case in TUNING]
    tasks = [*tuning, *((case, seed, "test") for case in CASES for seed in SEEDS)]
    todo = [task for task in tasks if not any(_same(row, task[0]) and row["seed"] == task[1] for row in rows[1:])]
    for row in parallel(run_of, todo, jobs):
        rows.append(row)
        write(ACCURACY, rows)
        print(json.dumps(row), flush=True)


def run_of(case: Row, seed: int, measured_on: str) -> Row:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return case | train(case, seed, measured_on)


def speed(rounds: int = 21, steps: int = 25) -> None:
    """The solvers take turns, so that a slow moment of the machine falls on both; a round's ratio is one number."""
    torch.set_num_threads(1)
    x, y = altmin.data.load("mnist", "train")
    batches = [(x[i : i + 200], y[i : i + 200]) for i in range(0, 200 * steps, 200)]
    found: Row = {}
    for net in ("binary-500", "staircase-500", "all-sign"):
        methods = {name: build({"net": net, "codes": name, "lr": LR}, 0) for name in ("straight-through", "discrete")}
        seconds: dict[str, list[float]] = {name: [] for name in methods}
        for _ in range(rounds + 1):  # the first to warm up
            for name, method in methods.items():
                start = time.perf_counter()
                for batch in batches:
                    method.step(*batch)
                seconds[name].append((time.perf_counter() - start) / steps)
        ratios = [a / b for a, b in zip(seconds["discrete"][1:], seconds["straight-through"][1:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[net] = {"median": middle, "q1": low, "q3": high, "rounds": rounds, "steps_per_round": steps}
        print(net, found[net], flush=True)
    about = {
        "environment": output.environment(torch.device("cpu")),
        "batch_size": 200,
        "discrete/straight-through": found,
    }
    SPEED.write_text(json.dumps(about, indent=2) + "\n")


def fill_table() -> None:
    rows, lines = read(ACCURACY), []
    for case in CASES:
        options = ", ".join(f"{k} {v}" for k, v in case.get("options", {}).items()) or "defaults"
        codes = {"wrapped": "none: backprop, `StraightThrough`"}.get(case["net"], case["codes"])
        codes = "none: backprop" if codes == "backprop" else codes
        layer = "**frozen**" if case.get("frozen") else "trained"
        found = spread([row["accuracy"] for row in rows[1:] if _same(row, case)])
        lines.append([NETS[case["net"]][0], codes, options, layer, found, str(case["epochs"])])
    accuracies = table(["net", "codes", "options", "first layer", "test accuracy", "epochs"], lines)
    times = json.loads(SPEED.read_text())["discrete/straight-through"]
    head = ["net", "time of a step, discrete / straight-through, median (quartiles)"]
    fill(DOCUMENT, accuracies + "\n" + table(head, [[NETS[net][0], ratio(each)] for net, each in times.items()]))


def picture() -> None:
    """Left: what a search asks of the codes around a threshold. Right: what becomes of it in training."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _thresholds(left)
    rows = read(ACCURACY)[1:]
    drawn = zip(
        CASES[:3], ("straight-through", "discrete", "first layer frozen"), (1, 0, 6), ("s", "o", "X"), strict=True
    )
    for case, label, colour, marker in drawn:
        curves = [row["curve"] for row in rows if _same(row, case)]
        epochs = range(1, case["epochs"] + 1)
        middle, low, high = ([f(values) for values in zip(*curves, strict=True)] for f in (statistics.mean, min, max))
        right.fill_between(epochs, low, high, color=COLOURS[colour], alpha=0.18, linewidth=0)
        right.plot(epochs, middle, color=COLOURS[colour], marker=marker, label=f"{label}: {middle[-1]:.4f}")
    right.set_title(f"sign, tanh, 500 units each, {len(SEEDS)} seeds", loc="left", fontweight="bold")
    right.set(xlabel="epoch", ylabel="test accuracy on MNIST", ylim=(0.925, 0.985))
    right.grid(color="0.9", linewidth=0.8)
    right.set_axisbelow(True)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(title="after the last epoch", loc="lower right", framealpha=0.9, edgecolor="0.8")
    figure.savefig(PICTURE, dpi=130)


def _thresholds(axes: Axes) -> None:
    """Sign and six units: two that are asked to flip, two to hold, one out of reach, one of which nothing is asked."""
    axes.axvspan(-1, 1, color="0.95", zorder=0)
    axes.plot([-1.9, 0], [-1, -1], color="0.25", linewidth=2)
    axes.plot([0, 1.9], [1, 1], color="0.25", linewidth=2)
    axes.plot([0, 0], [-1, 1], color="0.25", linewidth=1, linestyle=":")
    flip, hold, free = COLOURS[1], COLOURS[0], "0.55"
    for c, target, level, colour in (
        (-0.45, 1, 0.45, flip),
        (0.3, -1, -0.45, flip),
        (0.35, 1, 0.12, hold),
        (-0.7, -1, -0.12, hold),
        (-0.25, None, -0.75, free),
        (1.5, None, 0.75, free),
    ):
        if target is not None:
            arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", xy=(target, level), xytext=(c, level), arrowprops=arrow)
        axes.plot(c, level, "o", color=colour, markersize=9, markeredgecolor="white")
    axes.text(0.05, 0.52, "flip: change sides", color=flip, fontsize=9)
    axes.text(-0.35, -0.37, "flip", color=flip, ha="center", fontsize=9)
    axes.text(1.06, 0.12, "hold: stay clear\nof the threshold", color=hold, va="center", fontsize=9)
    axes.text(-1.06, -0.12, "hold", color=hold, va="center", ha="right", fontsize=9)
    axes.text(-0.33, -0.75, "no gain: nothing is asked", color="0.4", va="center", ha="right", fontsize=9)
    axes.text(1.5, 0.62, "out of reach", color="0.4", va="top", ha="center", fontsize=9)
    axes.text(0, -1.22, "within reach, |c| ≤ 1", color="0.4", ha="center", fontsize=9)
    axes.set_title("what the search asks of a code", loc="left", fontweight="bold")
    axes.set(xlabel="code c", ylabel="sign(c)", xlim=(-1.9, 1.9), ylim=(-1.35, 1.25))
    axes.set(xticks=(-1, 0, 1), yticks=(-1, 1))
    axes.spines[["top", "right"]].set_visible(False)


def _same(row: Row, case: Row) -> bool:
    return all(row.get(key) == case.get(key) for key in ("tuning", "net", "codes", "options", "frozen", "epochs", "lr"))


if __name__ == "__main__":
    commands = {"speed": speed, "table": fill_table, "picture": picture}
    (commands | {"accuracy": lambda: accuracy(jobs_given(sys.argv))})[sys.argv[1]]()
