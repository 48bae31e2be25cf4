"""The numbers of README.md, docs/choose.md, docs/faq.md and, for the interactive page, docs/measured.json:
`python experiments/pages.py` writes what the files of benchmarks/ say into them. It trains nothing.

Every table here is a function of result files; where they came from, the pages say.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from common import HERE, Row, fill, read, table

from reproduction.figure import load
from reproduction.folders import FIGURES, RESULTS
from reproduction.results import Results

BENCHMARKS = HERE / "benchmarks"
NETWORKS = BENCHMARKS / "networks"
MEASURED = HERE / "docs/measured.json"
ORDERS = ("codes-first", "weights-first")
LEARNING = load(FIGURES)["learning"]


def number(value: float) -> str:
    """Four decimals, one of a large number, or two significant digits of a small one."""
    return f"{value:.1f}" if value >= 10 else f"{value:.4f}" if value >= 0.01 else f"{value:.1e}"


def mean(values: Iterable[float], metric: str = "accuracy") -> float:
    """Over seeds: of errors the geometric mean, as in docs/defaults.md."""
    known = list(values)
    return statistics.geometric_mean(known) if metric == "error" else statistics.fmean(known)


def of_task(rows: Sequence[Row], task: str, method: str, **options: Any) -> float:
    """The last value of a task of experiments/defaults.py, mean over seeds."""
    found = [row for row in rows if (row["task"], row["method"], row["options"]) == (task, method, options)]
    return mean((row["rows"][-1]["value"] for row in found), found[0]["config"]["metric"])


def of_network(file: str, model: str, method: str, key: str, lr: float, **config: Any) -> float:
    """The last value of runs of experiments/networks.py with these settings."""
    wanted = {"lr": lr, **config}.items()
    found = [row for row in read(NETWORKS / file) if (row["model"], row["method"]) == (model, method)]
    return mean(
        row["rows"][-1][key] for row in found if wanted <= {k: _plain(v) for k, v in row["config"].items()}.items()
    )


def of_run(figure: str, model: str, method: str) -> float:
    """The test accuracy at the end of the runs of a figure of the paper."""
    rows = [row for row in read(RESULTS / f"{figure}.jsonl") if row["config"]["model"] == model]
    return mean(row["epochs"][-1]["test_accuracy"] for row in rows if row["config"]["method"] == method)


def of_stream(stream: str, model: str) -> float:
    """The progressive accuracy of a model of the figure `streams`."""
    rows = [row["config"] | row for row in read(RESULTS / "streams.jsonl")]
    return mean(row["value"] for row in rows if (row["stream"], row["model"]) == (stream, model))


def continual(learner: str, sequence: str, **options: Any) -> float:
    rows = [row["config"] | row for row in read(RESULTS / "continual.jsonl")]
    found = [
        row for row in rows if (row["learner"], row["sequence"], row["freeze_hidden"]) == (learner, sequence, False)
    ]
    return mean(row["average_accuracy"] for row in found if options.items() <= row["options"].items())


def learned(task: str, name: str, batch: int, measured: str = "test_accuracy") -> str:
    """What the runs of a task of the figure `learning` had come to after some batches, with the rate that was chosen;
    empty if they were not made."""
    results = Results.read(RESULTS / "learning.jsonl")
    runs = [run for run in LEARNING.runs if (run.task, run.name) == (task, name)]
    points = [point for run in runs for row in results.of(run) for point in row["points"]]
    found = [point[measured] for point in points if point["batch"] == batch]
    return number(mean(found)) if found else ""


def gains() -> str:
    """The memory beside the optimizers of backprop."""
    cases = [
        *[("lenet5, MNIST", "lenet5", batch) for batch in (25, 50, 250)],
        ("lenet5, MNIST", "lenet5-long", 2500),
        *[("mlp-2x100, MNIST", "mlp-2x100", batch) for batch in (50, 250)],
        ("mlp-2x100, MNIST, decay to 0", "mlp-2x100-long", 1250),
        ("mlp-20x100, MNIST", "mlp-20x100", 250),
        ("lenet5, Fashion-MNIST, decay to 0", "fashion", 1250),
        ("mlp-1x300, HIGGS, decay to 0", "higgs", 1990),
        *[("autoencoder, training loss", "autoencoder", batch) for batch in (500, 1000, 2500)],
        *[("autoencoder, test loss", "autoencoder", batch) for batch in (500, 1000, 2500)],
        *[("resnet18-64, CIFAR-10, one cycle", "resnet18-64", batch) for batch in (784, 1176, 4704)],
        *[("gpt-6x128, validation loss", "gpt-6x128", batch) for batch in (300, 1000, 2000)],
        ("gpt-6x128, validation loss", "gpt-6x128-long", 3000),
    ]
    names = ["Adam", "AdamW", "SGD", "Muon", "SOAP", "K-FAC", "CoActivation", "AM-mem"]
    shown = {"training loss": "train_loss", "test loss": "test_loss", "validation loss": "validation_loss"}
    lines = []
    for what, task, batch in cases:
        measured = shown.get(what.rpartition(", ")[2], "test_accuracy")
        lines.append([what, f"{batch:,}", *(learned(task, name, batch, measured) for name in names)])
    return table(["task", "batches", *names], lines)


def times() -> str:
    """The time of a step of am-mem over Adam's: two cores, and recorded on a GPU."""
    files = sorted(BENCHMARKS.glob("speed-cuda-memory*.json"), reverse=True)
    recorded = [row for path in files for row in json.loads(path.read_text())["results"]]
    lines = [
        [row["net"], machine, f"{row['time_ratio']['median']:.2f}", f"{row['memory_ratio']:.2f}"]
        for machine, rows in (("two cores", of_step()), ("H200, recorded", recorded))
        for row in rows
        if row["method"] == "am-mem"
    ]
    return table(["net", "machine", "time / Adam", "peak memory / Adam"], lines)


def first() -> list[list[Any]]:
    """The problems on which the memory is ahead, in the form of `problems`."""
    file, use = "reproduction/results/learning.jsonl", "`am-mem`, its defaults"
    cases = [
        ("few samples", "lenet5, accuracy after 25 batches", "lenet5", 25, "test_accuracy"),
        ("images, one pass", "lenet5, accuracy after an epoch", "lenet5", 250, "test_accuracy"),
        ("images, ten passes", "lenet5, accuracy after ten epochs", "lenet5-long", 2500, "test_accuracy"),
        ("images, decaying rate", "lenet5 on Fashion-MNIST, accuracy", "fashion", 1250, "test_accuracy"),
        ("a deep autoencoder", "autoencoder, training loss", "autoencoder", 500, "train_loss"),
        ("images, a large net", "resnet18-64 on CIFAR-10, accuracy, SGD", "resnet18-64", 4704, "test_accuracy"),
        ("text, few steps", "gpt-6x128, loss after 1,000 steps, AdamW", "gpt-6x128", 1000, "validation_loss"),
    ]
    return [
        [have, what, *(float(learned(task, name, batch, measured)) for name in (rival, "AM-mem")), use, file]
        for have, what, task, batch, measured in cases
        for rival in [next((name for name in ("AdamW", "SGD") if what.endswith(name)), "Adam")]
    ]


def problems() -> list[list[Any]]:
    """Of each kind of problem: what it is, the measure, backprop's and AM's result, which AM, the file."""
    rows, lines = read(BENCHMARKS / "defaults.jsonl"), []
    for have, task, take in (
        ("samples as vectors", "mlp-2x100", "`am-adam`, its defaults"),
        ("images, convolutions", "lenet5", "`am-adam`, its defaults"),
        ("many layers", "mlp-20x100", "`am-adam`, its defaults"),
        ("sparse or one-hot inputs", "onehot", "`am-adam`, its defaults"),
        ("regression, noisy", "friedman", "`loss=nn.MSELoss()`"),
        ("regression, smooth", "sine", "`loss=nn.MSELoss()`"),
    ):
        adam, am = (of_task(rows, task, method) for method in ("adam", "am-adam"))
        what = next(row for row in rows if row["task"] == task)["config"]["metric"]
        lines.append([have, f"{task}, {_metric(what)}", adam, am, take, "benchmarks/defaults.jsonl"])
    residual = {"key": "test_accuracy", "lr": 0.001}
    return [
        *first(),
        *lines,
        ["hundreds of residual layers", "residual-512x32, accuracy"]
        + [of_network("residual.jsonl", "residual-512x32", method, **residual) for method in ("backprop", "am")]
        + ["`am-adam`, its defaults", "benchmarks/networks/residual.jsonl"],
        ["batch norm, shortcuts", "resnet18-64 on CIFAR-10, accuracy"]
        + [of_network("resnet.jsonl", "resnet18-64", method, "test_accuracy", 0.2) for method in ("backprop", "am")]
        + ["`AltMin` with `LocalSGD`", "benchmarks/networks/resnet.jsonl"],
        ["attention", "gpt-6x128, loss"]
        + [of_network("gpt.jsonl", "gpt-6x128", method, "validation_loss", 0.004) for method in ("backprop", "am")]
        + ['`order="weights-first"`, the default there', "benchmarks/networks/gpt.jsonl"],
        ["sequences, recurrent layers", "elman-50, accuracy"]
        + [of_run("rnn50", "elman-50", method) for method in ("adam", "am-adam")]
        + ["either; backprop is faster", "reproduction/results/rnn50.jsonl"],
        ["a stream, one sample at a time", "bananas stream, accuracy"]
        + [of_stream("bananas", model) for model in ("Adam", "Gauss-Newton")]
        + ["`OnlineClassifier()`", "reproduction/results/streams.jsonl"],
        ["tasks in sequence", "split MNIST, accuracy"]
        + [
            continual(method, "split", **options)
            for method, options in (("adam", {}), ("am-mem-fitted", {"forget": 1.0}))
        ]
        + ["`am-mem-fitted` with `forget=1`", "reproduction/results/continual.jsonl"],
    ]


def needs() -> str:
    """What AM reaches beside backprop on each kind of problem, and which AM that is."""
    head = ["problem", "measured on", "backprop", "AM", "use"]
    return table(head, [[have, what, number(adam), number(am), take] for have, what, adam, am, take, _ in problems()])


def summary() -> str:
    """The table of the README: some of the problems, and the time of a step on two cores."""
    shown = dict.fromkeys(("mlp-2x100", "gpt-6x128", "elman-50"), "AM-Adam")
    shown |= {"resnet18-64": "AM-SGD", "bananas": "Gauss-Newton", "split MNIST": "AM-mem-fitted"}
    shown |= {what: "AM-mem" for _, what, *_ in first()}
    lines = []
    for _, what, adam, am, _, file in problems():
        names = [name for name in shown if what.startswith(name)]
        if names:
            lines.append([what, number(adam), number(am), shown[names[-1]], f"[{_name(file)}]({file})"])
    (step,) = [row for row in of_step() if (row["net"], row["method"]) == ("mlp-2x100", "am-adam")]
    file = "core-speed-mnist.json"
    time = f"{step['time_ratio']['median']:.2f}"
    lines.append(["mlp-2x100, time of a step", "1.00", time, "AM-Adam", f"[{file}](benchmarks/{file})"])
    return table(["measured", "backprop", "AM", "method", "file"], lines)


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def of_step() -> list[Row]:
    """Time and memory of a step on two cores, relative to backprop with Adam."""
    files = [json.loads((BENCHMARKS / f"core-speed-{data}.json").read_text()) for data in ("mnist", "higgs")]
    return [row for file in files for row in file["results"]]


def methods() -> str:
    """Six ways to train one net, with what a step costs on two cores."""
    rows = [row for row in read(BENCHMARKS / "core-accuracy.jsonl")[1:] if not row.get("tuning")]
    lines = []
    for method in ("am-adam", "adam", "am-mem", "am-mem-fitted", "am-sgd", "sgd"):
        runs = [
            r for r in rows if (r["model"], r["method"], r["options"], r.get("epochs")) == ("mlp-2x100", method, {}, 5)
        ]
        cost = [r for r in of_step() if (r["net"], r["method"]) == ("mlp-2x100", method)]
        cells = [f"{cost[0]['time_ratio']['median']:.2f}", f"{cost[0]['memory_ratio']:.2f}"] if cost else ["", ""]
        lines.append([f"`{method}`", *(number(mean(r[key] for r in runs)) for key in ("early", "accuracy")), *cells])
    return table(["method", "after 50 batches", "after 5 epochs", "step time / Adam", "peak memory / Adam"], lines)


def shares() -> str:
    """Both ends of the share and the default, for both orders."""
    lines = []
    for task in measured()["tasks"]:
        values = [task["orders"][order][str(share)] for order in ORDERS for share in (0.1, 1.0)]
        lines.append([task["name"], number(task["backprop"]), *map(number, values)])
    head = ["task", "backprop", *(f"{order}, share {share}" for order in ORDERS for share in ("0.1", "1"))]
    return table(head, lines)


def penalty() -> str:
    """Three schedules of mu, by their mean gain over Adam on the tasks of docs/defaults.md."""
    from default_table import ranking

    head, rule, *lines = [line.split(" | ")[2:] for line in ranking(BENCHMARKS / "defaults-choice.jsonl").splitlines()]
    rows = ranking(BENCHMARKS / "defaults-choice.jsonl").splitlines()[2:]
    chosen = [line for row, line in zip(rows, lines, strict=True) if row.startswith("| 0.1 | codes-first |")]
    return "\n".join("| " + " | ".join(cells) for cells in (head, rule, *chosen)) + "\n"


def memory() -> str:
    """Tasks in sequence, with a memory that keeps everything and one that fades."""
    named = {
        "`am-mem-fitted`, `forget=1`": ("am-mem-fitted", {"forget": 1.0}),
        "`am-mem-fitted`, `forget=0.9`": ("am-mem-fitted", {"forget": 0.9}),
        "`am-adam`": ("am-adam", {}),
        "`adam`": ("adam", {}),
        "replay, same size": ("replay", {}),
        "streaming LDA, no net": ("slda", {}),
    }
    lines = [
        [name, *(f"{continual(learner, sequence, **options):.3f}" for sequence in ("split", "permuted"))]
        for name, (learner, options) in named.items()
    ]
    return table(["learner", "split MNIST", "permuted MNIST"], lines)


def limit() -> str:
    """AM with share 0 beside Adam, same seed: the same method up to rounding."""
    lines = [
        [task["name"], number(task["backprop"]), number(task["orders"]["codes-first"]["0.0"])]
        for task in measured()["tasks"]
        if task["file"] == "share.jsonl"
    ]
    return table(["task", "Adam", "AM-Adam, share 0"], lines)


def faster() -> str:
    """Time of a step over that of backprop with Adam, same kind of step: on two cores, on a GPU, recorded on a GPU."""
    found: dict[str, dict[str, float]] = {}
    files = (BENCHMARKS / f"speed-cuda-{part}.json" for part in ("nets", "large"))
    on_gpu = [json.loads(file.read_text()) for file in files if file.exists()]
    for device, rows in (("cpu", of_step()), *(("cuda", file["results"]) for file in on_gpu)):
        for row in rows:
            if row["method"] == "am-adam" and row["mode"] in ("eager", "graph"):
                found.setdefault(row["model"], {})[f"{device} {row['mode']}"] = row["time_ratio"]["median"]
    for row, am, _ in _costs():
        found.setdefault(row["model"], {})[f"{row['config']['device']} {am['mode']}"] = _time(am)
    kinds = {"cpu eager": "2 CPU cores", "cuda eager": "H200", "cuda graph": "H200, both recorded"}
    lines = [[net, *(f"{each[k]:.2f}" if k in each else "" for k in kinds)] for net, each in found.items()]
    return table(["net", *kinds.values()], lines)


def space() -> str:
    """Peak memory of a step over backprop's, and that of backprop with checkpointing, with the time it takes."""
    lines = []
    for row, am, others in _costs():
        base, saved = others["backprop"]["peak_bytes"], others.get("checkpointed")
        cells = [f"{saved['peak_bytes'] / base:.2f}", f"{_time(saved):.2f}"] if saved else ["", ""]
        lines.append([row["model"], _device(row), _mode(am["mode"]), f"{am['peak_bytes'] / base:.2f}", *cells])
    return table(["net", "machine", "step", "AM", "checkpointed backprop", "its time"], lines)


def measured() -> dict[str, Any]:
    """What the interactive page shows: of every task the value for each order and share, and backprop's."""
    rows, tasks = read(BENCHMARKS / "share.jsonl"), []
    for name in dict.fromkeys(row["task"] for row in rows):
        first = next(row for row in rows if row["task"] == name)
        options = [row["options"] for row in rows if row["task"] == name and row["method"] == "am-adam"]
        orders: dict[str, dict[str, float]] = {order: {} for order in ORDERS}
        for each in sorted(options, key=lambda option: option["share"]):
            orders[each["order"]][str(each["share"])] = of_task(rows, name, "am-adam", **each)
        metric = f"test {_metric(first['config']['metric'])}"
        tasks.append({"name": name, "metric": metric, "file": "share.jsonl", "seeds": 1, "orders": orders})
        tasks[-1]["backprop"] = of_task(rows, name, "adam")
    dials = {"gpt-4x64": "validation_loss", "resnet18-32": "test_accuracy"}
    return {"tasks": [*tasks, *(_dial(model, measure) for model, measure in dials.items())]}


def _dial(model: str, measure: str) -> dict[str, Any]:
    """One task more for the interactive page: a net of docs/networks-measured.md."""
    rows = [row for row in read(NETWORKS / "dial.jsonl") if row["model"] == model]
    rows = [row for row in rows if row["config"].get("grain", "residual") == "residual"]
    orders: dict[str, dict[str, float]] = {order: {} for order in ORDERS}
    for share in sorted({row["config"]["share"] for row in rows if row["method"] == "am"}):
        for order in ORDERS:
            wanted = {"share": share, "order": order}.items()
            found = [row for row in rows if wanted <= {k: _plain(v) for k, v in row["config"].items()}.items()]
            if found:
                orders[order][str(float(share))] = mean(row["rows"][-1][measure] for row in found)
    orders["weights-first"].setdefault("0.0", orders["codes-first"]["0.0"])  # no code moves: the orders are the same
    seeds = len({row["seed"] for row in rows})
    backprop = mean(row["rows"][-1][measure] for row in rows if row["method"] == "backprop")
    task = {"name": model, "metric": measure.replace("_", " "), "file": "networks/dial.jsonl", "seeds": seeds}
    return {**task, "orders": orders, "backprop": backprop}


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"results": summary},
    "docs/choose.md": {"needs": needs, "methods": methods, "shares": shares, "penalty": penalty, "memory": memory},
    "docs/memory.md": {"gains": gains, "times": times},
    "docs/faq.md": {"limit": limit, "faster": faster, "space": space},
}


def main() -> int:
    for document, parts in PARTS.items():
        for name, part in parts.items():
            fill(HERE / document, "\n" + part() + "\n", name)
    MEASURED.write_text(json.dumps(measured()) + "\n")
    return 0


def _metric(name: str) -> str:
    return {"prequential": "accuracy"}.get(name, name)


def _plain(value: Any) -> Any:
    """A setting that can be compared; lists are not compared."""
    return None if isinstance(value, list) else value


def _costs() -> Iterable[tuple[Row, Row, dict[str, Row]]]:
    """The rows of networks/cost.jsonl, for each mode with AM's result and all of that mode by name."""
    for row in read(NETWORKS / "cost.jsonl"):
        for mode in dict.fromkeys(each["mode"] for each in row["results"]):
            results = {each["method"]: each for each in row["results"] if each["mode"] == mode}
            yield row, results["am"], results


def _time(result: Row) -> float:
    return float(result["over_backprop"][result["mode"]]["median"])


def _device(row: Row) -> str:
    return "H200" if row["config"]["device"] == "cuda" else "2 CPU cores"


def _mode(mode: str) -> str:
    return {"eager": "ordinary", "graph": "recorded"}[mode]


if __name__ == "__main__":
    sys.exit(main())
