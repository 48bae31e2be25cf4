"""The figures of docs/methods.md: `python experiments/rivals.py accuracy`, `... speed`, `... table`, `... picture`.

`accuracy` trains every case on MNIST (its first 50,000 rows) or Fashion-MNIST, seeds 0 to 2, and keeps test accuracies
after each epoch in benchmarks/rivals-accuracy.jsonl; runs that are in the file are not made again, --jobs N makes so
many at once, and --only NAME,NAME those of some methods. `speed` measures passes over the data by `reproduction speed`
and keeps them in benchmarks/rivals-speed-*.json. `table` and `picture` write into docs/ and train nothing.
"""

import json
import sys
import warnings
from statistics import mean
from typing import Any

import torch
from common import HERE, SEEDS, Row, fill, jobs_given, parallel, ratio, read, spread, table, write

import altmin
from altmin.cli import output
from altmin.training import fit
from reproduction.__main__ import run as command

ACCURACY = HERE / "benchmarks/rivals-accuracy.jsonl"
DOCUMENT, PICTURE = HERE / "docs/methods.md", HERE / "docs/images/rivals.png"
KEY = ("method", "net", "data", "epochs", "batch_size", "schedule", "options")


def case(method: str, net: str, epochs: int, target: float | None = None, **more: Any) -> Row:
    """One row of the table. target: the accuracy that the method has to reach, as far as there is one."""
    plain = {"data": "mnist", "batch_size": 200, "schedule": "constant", "options": {}}
    return {"method": method, "net": net, "epochs": epochs, "target": target} | plain | more


FULL = {"batch_size": 5000}
"""Full-batch methods see the data in parts of any size; larger ones are faster."""
INFERENCE = {"inference_steps": 64, "inference_rate": 0.25}
"""As published for this net."""
DEEP = {"data": "fashion-mnist", "batch_size": 64}
CASES: list[Row] = [
    case("admm", "mlp-2x100", 50, 0.89, **FULL),
    case("proxprop", "mlp-2x100", 5, 0.95),
    case("am-adam", "mlp-2x100", 5),
    case("adam", "mlp-2x100", 5),
    case("bcd", "mlp-2x500", 50, 0.93, **FULL),
    case("dtp", "tanh-2x500", 8, 0.977, schedule="cosine"),
    case("am-adam", "tanh-2x500", 8, schedule="cosine"),
    case("adam", "tanh-2x500", 8, schedule="cosine"),
    case("dtp", "binary-500", 8, 0.974, schedule="cosine"),
    case("am-adam", "binary-500", 8, schedule="cosine", options={"lr": 0.002}),
    case("straight-through", "binary-500", 20, 0.98, schedule="cosine"),
    case("predictive-coding", "residual-32x32", 1, 0.68, **DEEP, options=INFERENCE),
    case("pc-alm", "residual-32x32", 1, **DEEP, options=INFERENCE),
    case("am-adam", "residual-32x32", 1, **DEEP),
    case("adam", "residual-32x32", 1, **DEEP),
]
INFERRING = ",".join(f"{name}:inference_steps=64" for name in ("predictive-coding", "pc-alm"))
SPEED: dict[str, tuple[str, int]] = {
    "mlp-2x100": ("admm,proxprop,am-adam,am-mem-fitted,adam", 50_000),
    "mlp-2x500": ("bcd,am-adam,am-mem-fitted,adam", 50_000),
    "tanh-2x500": ("dtp,straight-through,am-adam,adam", 50_000),
    "residual-32x32:64": (f"{INFERRING},am-adam,adam", 1_600),  # a pass over all the data would take minutes
}
"""For every net the methods, and the samples in a pass. Adam cannot train nets with signs, so they have no ratio."""


def train(of: Row, seed: int) -> Row:
    """One run: the test accuracy after each epoch, and at the end."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    samples, measured = (altmin.data.load(of["data"], part) for part in ("train", "test"))
    torch.manual_seed(seed)
    model = altmin.models.create(of["net"], samples[0].shape[1:], 10)
    method = altmin.methods.create(of["method"], model, **of["options"])
    history = fit(
        *(method, samples, measured),
        **{name: of[name] for name in ("epochs", "batch_size", "schedule")},
        seed=seed,
    )
    curve = [row["test_accuracy"] for row in history.epochs]
    return of | {"seed": seed, "rows": len(samples[0]), "curve": curve, "accuracy": curve[-1]}


def accuracy(jobs: int = 1, only: str | None = None) -> None:
    """All runs; those already in the file are kept, so that it can be stopped and go on."""
    rows = read(ACCURACY) if ACCURACY.exists() else [{"environment": output.environment(torch.device("cpu"))}]
    tasks = [(each, seed) for each in CASES for seed in SEEDS if only is None or each["method"] in only.split(",")]
    for row in parallel(train, [task for task in tasks if not _found(rows, *task)], jobs):
        rows.append(row)
        write(ACCURACY, rows)
        print(json.dumps(row), flush=True)


def speed(seconds: float = 30.0, only: str | None = None) -> None:
    """Whole passes over the data: full-batch methods do part of their work at the end of one."""
    for net, (methods, samples) in SPEED.items():
        if only in (None, net):
            given = ["--model", net, "--methods", methods, "--samples", str(samples), "--seconds", str(seconds)]
            command(["speed", *given, "--modes", "eager", "--threads", "2", "--json", str(_speed_file(net))])


def fill_table() -> None:
    rows, lines = read(ACCURACY)[1:], []
    times = {net: json.loads(_speed_file(net).read_text())["results"] for net in SPEED if _speed_file(net).exists()}
    for each in CASES:
        found = [row for row in rows if _same(row, each)]
        measured = [
            r
            for net in times
            for r in times[net]
            if r["model"] == each["net"] and r["method"].partition(":")[0] == each["method"] not in ("am-adam", "adam")
        ]
        options = ", ".join(f"{k} {v}" for k, v in each["options"].items()) or "defaults"
        wanted = "" if each["target"] is None else f"{each['target']:.3f}"
        lines.append(
            [
                *(each["data"], each["net"], f"`{each['method']}`", options, f"{each['epochs']}, {each['schedule']}"),
                *(_first(found), spread([row["accuracy"] for row in found]), wanted),
                ratio(measured[0]["time_ratio"]) if measured else "",
            ]
        )
    head = ["data", "net", "method", "options", "epochs", "after one", "at the end", "target", "time of a pass / Adam"]
    fill(DOCUMENT, table(head, lines))


def picture() -> None:
    """Accuracy against passes over the data, one panel for each net."""
    from matplotlib.figure import Figure

    from altmin.cli.plot import mark, style, tidy

    rows, nets = read(ACCURACY)[1:], ("mlp-2x100", "mlp-2x500", "tanh-2x500", "binary-500")
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    names = list(dict.fromkeys(each["method"] for each in CASES if each["net"] in nets))
    for axes, net in zip(figure.subplots(1, len(nets), sharey=True), nets, strict=True):
        for each in (each for each in CASES if each["net"] == net):
            curves = [row["curve"] for row in rows if _same(row, each)]
            if not curves:
                continue
            i = names.index(each["method"])
            passes = range(1, each["epochs"] + 1)
            middle, low, high = ([f(a) for a in zip(*curves, strict=True)] for f in (mean, min, max))
            (line,) = axes.plot(passes, middle, markevery=max(1, each["epochs"] // 8), label=each["method"], **style(i))
            axes.fill_between(passes, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
        axes.set_title(net, loc="left", fontweight="bold")
        axes.set(xscale="log", xlabel="passes over the data")
        mark(axes.xaxis, [1, 2, 5, 10, 20, 50])
        axes.set_yscale("logit")
        mark(axes.yaxis, [0.5, 0.8, 0.9, 0.95, 0.98])
        tidy(axes)
        axes.legend(loc="lower right", framealpha=0.9, edgecolor="0.8")
    figure.axes[0].set_ylabel("test accuracy on MNIST")
    figure.savefig(PICTURE, dpi=130)


def _speed_file(net: str) -> Any:
    return HERE / f"benchmarks/rivals-speed-{net.partition(':')[0]}.json"


def _first(found: list[Row]) -> str:
    return spread([row["curve"][0] for row in found]) if found and len(found[0]["curve"]) > 1 else ""


def _same(row: Row, of: Row) -> bool:
    return all(row.get(key) == of[key] for key in KEY)


def _found(rows: list[Row], of: Row, seed: int) -> bool:
    return any(_same(row, of) and row["seed"] == seed for row in rows[1:])


if __name__ == "__main__":
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
    commands = {"speed": lambda: speed(only=only), "table": fill_table, "picture": picture}
    (commands | {"accuracy": lambda: accuracy(jobs_given(sys.argv), only)})[sys.argv[1]]()
