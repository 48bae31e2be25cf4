"""The figures of docs/recurrent.md: `python experiments/recurrent.py accuracy`, then `speed`, `table` and `picture`.

`accuracy` trains Elman networks on sequential MNIST, tuning rates on validation data and reporting on test data, seeds
0 to 2, in benchmarks/recurrent-accuracy.jsonl: minutes on a GPU, a day on a CPU. What the file already holds is not
done again, so it can be stopped; delete the file to start again; --jobs N runs N at once. `speed` calls `altmin
bench` on the GPU if there is one, else on two cores. `table` and `picture` train nothing.
"""

import json
import sys
from typing import Any

import torch
from common import HERE, SEEDS, Row, best, fill, jobs_given, parallel, ratio, read, spread, table, write

import altmin
from altmin.cli import output, run
from altmin.training import fit

ACCURACY, DOCUMENT = HERE / "benchmarks/recurrent-accuracy.jsonl", HERE / "docs/recurrent.md"
SPEED = {"cuda": HERE / "benchmarks/recurrent-speed-cuda.json", "cpu": HERE / "benchmarks/recurrent-speed-cpu.json"}
WHERE = {"cuda": "H200", "cpu": "two cores"}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MODELS = ("elman-15", "elman-50")
RATES = {
    "am-adam": (0.002, 0.005, 0.01, 0.02),
    "am-sgd": (0.005, 0.01, 0.02, 0.05),
    "am-mem-fitted": (0.005, 0.01, 0.02),
}
RATES |= {"adam": RATES["am-adam"], "sgd": (0.02, 0.05, 0.1, 0.2)}


def cases() -> list[Row]:
    """Both nets at the rate 0.005 by both sweeps; the smaller also with tuned rates and other methods."""
    found = []

    def add(model: str, method: str, lr: float | str, epochs: int = 10, codes: Row | None = None, **more: Any) -> None:
        own = {"codes": codes or {"sweep": "parallel"}} if method.startswith("am-") else {}
        found.append({"model": model, "method": method, "options": {"lr": lr, **more, **own}, "epochs": epochs})

    for model in MODELS:
        for method in ("am-adam", "adam"):
            add(model, method, 0.005)
        if model == "elman-15":
            for method in ("am-adam", "am-mem-fitted", "am-sgd", "adam", "sgd"):
                add(model, method, "tuned")
        else:
            add(model, "am-mem-fitted", 0.005)
        add(model, "am-adam", 0.005, codes={"sweep": "parallel", "rounds": 5})
        add(model, "am-adam", 0.005, 2, {"sweep": "parallel", "steps": 5}, steps=5)
        add(model, "am-adam", 0.005, codes={"sweep": "exact"})
    add("elman-15", "am-adam", 0.005, 1, {"sweep": "exact"})
    return found


def train(case: Row, seed: int, measured_on: str = "test") -> Row:
    """One run: the accuracy after each epoch."""
    samples, measured = (
        tuple(t.to(DEVICE) for t in altmin.data.load("mnist-sequential", split)) for split in ("train", measured_on)
    )
    torch.manual_seed(seed)
    model = altmin.models.create(case["model"], (784, 1), 10).to(DEVICE)
    options: dict[str, Any] = dict(case["options"])
    if "codes" in options:
        options["codes"] = altmin.RecurrentCodes(**options["codes"])
    method = altmin.methods.create(case["method"], model, **options)
    history = fit(method, samples, measured, epochs=case["epochs"], batch_size=1024, seed=seed)
    epochs = [row["test_accuracy"] for row in history.epochs]
    seconds = sum(row["seconds"] for row in history.epochs)
    return {
        "seed": seed,
        "measured_on": measured_on,
        "epoch_accuracy": epochs,
        "accuracy": epochs[-1],
        "seconds": seconds,
    }


def accuracy(jobs: int = 1) -> None:
    rows = read(ACCURACY) if ACCURACY.exists() else [{"environment": output.environment(DEVICE)}]
    todo = [case for case in cases() if not runs_of(case, rows)]
    fixed = [case for case in todo if case["options"]["lr"] != "tuned"]
    searched = [case for case in todo if case["options"]["lr"] == "tuned"]
    trials = [
        case | {"options": {**case["options"], "lr": lr}, "tuning": True}
        for case in searched
        for lr in RATES[case["method"]]
    ]
    tasks = [(case, seed, "test") for case in fixed[::-1] for seed in SEEDS]  # the longest first
    for row in parallel(run_of, [*tasks, *((trial, seed, "validation") for trial in trials for seed in SEEDS)], jobs):
        rows.append(row)
        write(ACCURACY, rows)
    chosen = []
    for case in searched:
        tuning = [row for row in rows if row.get("tuning") and row["method"] == case["method"]]
        chosen.append(case | {"options": {**case["options"], "lr": best(tuning, "lr")}, "tuned": True})
    for row in parallel(run_of, [(case, seed, "test") for case in chosen for seed in SEEDS], jobs):
        rows.append(row)
        write(ACCURACY, rows)


def run_of(case: Row, seed: int, measured_on: str) -> Row:
    row = case | train(case, seed, measured_on)
    print(json.dumps(row), flush=True)
    return row


def speed() -> None:
    arguments = ["--data", "mnist-sequential", "--model", ",".join(MODELS), "--methods", "am-adam,am-mem-fitted"]
    arguments += ["--batch-size", "1024", "--device", DEVICE.type, "--threads", "2", "--seconds", "40"]
    if code := run(["bench", *arguments, "--json", str(SPEED[DEVICE.type])]):
        sys.exit(code)


def runs_of(case: Row, rows: list[Row]) -> list[Row]:
    """The runs of one case, those on validation data left out."""
    tuned = case["options"]["lr"] == "tuned"
    runs = [row for row in rows if "accuracy" in row and not row.get("tuning") and bool(row.get("tuned")) == tuned]
    alike = [row for row in runs if all(row[k] == case[k] for k in ("model", "method", "epochs"))]
    return alike if tuned else [row for row in alike if row["options"] == case["options"]]


def fill_table() -> None:
    rows, lines = read(ACCURACY), []
    for case in cases():
        mine = runs_of(case, rows)
        if not mine:  # it was stopped before
            continue
        after = [spread([r["epoch_accuracy"][n - 1] for r in mine]) if n <= case["epochs"] else "" for n in (1, 2, 10)]
        lines.append([case["model"], case["method"], _options(mine[0]), *after])
    accuracies = table(["net", "method", "options", "1 epoch", "2 epochs", "10 epochs"], lines)
    times = [
        [WHERE[device], row["model"], row["method"], ratio(row["time_ratio"]), f"{row['memory_ratio']:.2f}"]
        for device, path in SPEED.items()
        for row in json.loads(path.read_text())["results"]
        if row["method"] != "adam"
    ]
    head = ["on", "net", "method", "step time / BPTT-Adam, median (quartiles)", "peak memory / its"]
    fill(DOCUMENT, accuracies + "\n" + table(head, times))


def _options(row: Row) -> str:
    flat = {k: v for k, v in row["options"].items() if k != "codes"}
    codes = {("code steps" if k == "steps" else k): v for k, v in row["options"].get("codes", {}).items()}
    return ", ".join(f"{k} {v}" for k, v in (flat | codes).items()) + (" (tuned)" if row.get("tuned") else "")


def picture() -> None:
    from recurrent_picture import draw

    draw(HERE / "docs/images/recurrent.png", [row for row in read(ACCURACY) if row.get("tuned")])


if __name__ == "__main__":
    commands = {"speed": speed, "table": fill_table, "picture": picture}
    (commands | {"accuracy": lambda: accuracy(jobs_given(sys.argv))})[sys.argv[1]]()
