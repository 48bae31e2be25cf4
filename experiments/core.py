"""AM and backprop on MNIST and HIGGS: `python experiments/core.py accuracy`, `... speed`, then `... table`.

`accuracy` tunes the learning rate of backprop-Adam on validation data and reports every case on test data, seeds 0 to
2, in benchmarks/core-accuracy.jsonl, with --jobs N in N processes at once, with --only NAME of one method; the
HIGGS cases need `altmin data fetch higgs`, or a part of that file. `speed` calls `speed` for each data set and
keeps its JSON beside. `table` writes all into docs/ and trains nothing.
"""

import json
import sys
import warnings

import torch
from common import HERE, SEEDS, Row, best, fill, jobs_given, parallel, ratio, read, spread, table, write

import altmin
from altmin.cli import output
from altmin.training import fit
from reproduction.__main__ import run

ACCURACY = HERE / "benchmarks/core-accuracy.jsonl"
SPEED = {"mnist": HERE / "benchmarks/core-speed-mnist.json", "higgs": HERE / "benchmarks/core-speed-higgs.json"}
CASES: list[Row] = [
    {"model": "mlp-2x100", "method": "am-adam", "options": {"lr": 0.004}, "epochs": 1, "early": 50},
    {"model": "mlp-2x100", "method": "adam", "options": {"lr": "tuned"}, "epochs": 1, "early": 50},
    {"model": "mlp-2x100", "method": "am-mem", "options": {}, "epochs": 5, "early": 50},
    {"model": "mlp-2x100", "method": "am-mem-fitted", "options": {}, "epochs": 5, "early": 50},
    {"model": "mlp-2x100", "method": "am-sgd", "options": {}, "epochs": 5, "early": 50},
    {"model": "mlp-2x100", "method": "sgd", "options": {}, "epochs": 5, "early": 50},
    {"model": "mlp-2x100", "method": "am-adam", "options": {}, "epochs": 5, "early": 50},
    {"model": "mlp-2x100", "method": "adam", "options": {}, "epochs": 5, "early": 50},
    {"model": "mlp-2x100", "method": "am-adam-offline", "options": {}, "epochs": 10, "early": None},
    {"model": "mlp-2x100", "method": "am-mem-offline", "options": {}, "epochs": 10, "early": None},
    {"model": "mlp-2x100", "method": "am-mem-fitted-offline", "options": {}, "epochs": 10, "early": None},
    {"model": "mlp-8x100", "method": "am-adam", "options": {"lr": 0.001}, "epochs": 1, "early": 50},
    {"model": "mlp-8x100", "method": "adam", "options": {"lr": 0.001}, "epochs": 1, "early": 50},
    {"model": "mlp-20x100", "method": "am-adam", "options": {"lr": 0.001}, "epochs": 2, "early": 50},
    {"model": "mlp-20x100", "method": "adam", "options": {"lr": 0.001}, "epochs": 2, "early": 50},
    {"model": "lenet5", "method": "am-adam", "options": {}, "epochs": 2, "early": 50},
    {"model": "lenet5", "method": "adam", "options": {}, "epochs": 2, "early": 50},
    {"model": "mlp-1x300", "method": "am-adam", "options": {"lr": 0.001}, "batches": 5000, "data": "higgs"},
    {"model": "mlp-1x300", "method": "adam", "options": {"lr": 0.001}, "batches": 5000, "data": "higgs"},
]


def train(case: Row, seed: int, measured_on: str = "test") -> Row:
    """One run; the accuracy after the early batches, if any, and at the end."""
    name = case.get("data", "mnist")
    samples, measured = altmin.data.load(name, "train"), altmin.data.load(name, measured_on)
    torch.manual_seed(seed)
    about = altmin.data.dataset(name)
    model = altmin.models.create(case["model"], about.sample_shape, about.classes)
    method = altmin.methods.create(case["method"], model, **case["options"])
    per_epoch = -(-len(samples[0]) // 200)
    early = [b for b in (case.get("early"), case.get("batches")) if b]
    epochs = case.get("epochs") or -(-case["batches"] // per_epoch)
    history = fit(method, samples, measured, epochs=epochs, batch_size=200, seed=seed, eval_batches=early)
    last = history.batches[-1] if "batches" in case else history.epochs[-1]
    row = {"seed": seed, "measured_on": measured_on, "rows": len(samples[0]), "accuracy": last["test_accuracy"]}
    return row | ({"early": history.batches[0]["test_accuracy"]} if case.get("early") else {})


def tuned(case: Row, jobs: int) -> tuple[Row, list[Row]]:
    """The case with the rate of the best mean accuracy on validation data after its epochs, and all that were tried."""
    trials = [case | {"options": {"lr": lr}, "tuning": True} for lr in (0.001, 0.002, 0.004, 0.008)]
    tasks = [(trial, seed, "validation") for trial in trials for seed in SEEDS]
    rows = list(parallel(run_of, tasks, jobs))
    return case | {"options": {"lr": best(rows, "lr")}}, rows


def run_of(case: Row, seed: int, measured_on: str) -> Row:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return case | train(case, seed, measured_on)


def accuracy(jobs: int = 1, only: str | None = None) -> None:
    """All runs; with `only` those of one method, in the place of what the file has of it."""
    environment = {"environment": output.environment(torch.device("cpu"))}
    rows: list[Row] = [environment] if only is None else [row for row in read(ACCURACY) if row.get("method") != only]
    cases, own = [], environment if only else {}
    for case in CASES:
        if only not in (None, case["method"]):
            continue
        if case["options"].get("lr") == "tuned":
            case, tuning = tuned(case, jobs)
            rows += tuning
        cases.append(case)
    for row in parallel(run_of, [(case, seed, "test") for case in cases for seed in SEEDS], jobs):
        print(json.dumps(row), flush=True)
        rows.append(row | own)
    write(ACCURACY, rows)


def speed() -> None:
    for data, models in (("mnist", "mlp-2x100,mlp-2x500,lenet5"), ("higgs", "mlp-1x300")):
        arguments = ["--data", data, "--model", models, "--methods", "am-adam,am-mem,am-mem-fitted", "--threads", "2"]
        arguments += ["--modes", "eager"]
        if code := run(["speed", *arguments, "--json", str(SPEED[data])]):
            sys.exit(code)


def fill_table() -> None:
    runs = [row for row in read(ACCURACY) if "accuracy" in row and not row.get("tuning")]
    lines = []
    for case in CASES:
        is_tuned = case["options"].get("lr") == "tuned"
        mine = [r for r in runs if _same(r, case, is_tuned)]
        options = ", ".join(f"{k} {v}" for k, v in mine[0]["options"].items()) + (" (best of four)" if is_tuned else "")
        length = (
            f"{case['epochs']} epoch{'s' * (case['epochs'] > 1)}"
            if "epochs" in case
            else f"{case['batches']:,} batches"
        )
        cells = [case.get("data", "mnist"), case["model"], case["method"], options or "defaults"]
        found = [spread([r.get(key) for r in mine]) for key in ("early", "accuracy")]
        lines.append([*cells, *found, length])
    accuracies = table(["data", "net", "method", "options", "after 50 batches", "at the end", "after"], lines)
    times = [
        [row["model"], row["method"], ratio(row["time_ratio"]), f"{row['memory_ratio']:.2f}"]
        for path in SPEED.values()
        for row in json.loads(path.read_text())["results"]
        if row["method"] != "adam"
    ]
    head = ["net", "method", "step time / Adam, median (quartiles)", "peak memory / Adam"]
    fill(HERE / "docs/methods.md", accuracies, "core")
    fill(HERE / "docs/speed-measured.md", table(head, times), "core")


def _same(row: Row, case: Row, tuned: bool) -> bool:
    keys = ("model", "method", "epochs", "batches", "data")
    alike = all(row.get(k) == case.get(k) for k in keys)
    return alike and (tuned or row["options"] == case["options"])


if __name__ == "__main__":
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
    commands = {"accuracy": lambda: accuracy(jobs_given(sys.argv), only), "speed": speed, "table": fill_table}
    commands[sys.argv[1]]()
