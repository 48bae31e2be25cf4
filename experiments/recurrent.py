"""The figures of docs/recurrent.md: `python experiments/recurrent.py tasks`, then `speed`, `table` and `picture`.

`tasks` trains gated nets on the adding and copying tasks, tuning rates on validation samples and reporting on test
samples, seeds 0 to 2, in benchmarks/recurrent-tasks.jsonl: minutes on a GPU, hours on a CPU. What the file already
holds is not done again, so it can be stopped; delete the file to start again; --jobs N runs N at once. `speed` calls
`speed` on the GPU if there is one, else on one core. `table` and `picture` train nothing; accuracies on MNIST
are those of `python -m reproduction figure fig6`, `rnn50`, `rows` and `pixels`.
"""

import json
import statistics
import sys

import torch
from common import HERE, SEEDS, Row, fill, jobs_given, parallel, ratio, read, table, write
from sequence_tasks import MODELS, TASKS, train

from altmin.cli import output
from reproduction.__main__ import run
from reproduction.figure import load
from reproduction.folders import FIGURES, RESULTS
from reproduction.results import Results

RESULT, DOCUMENT = HERE / "benchmarks/recurrent-tasks.jsonl", HERE / "docs/recurrent.md"
SPEED = {"cuda": HERE / "benchmarks/recurrent-speed-cuda.json", "cpu": HERE / "benchmarks/recurrent-speed-cpu.json"}
WHERE = {"cuda": "H200", "cpu": "one core"}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RATES = (0.002, 0.005, 0.01)
METHODS: list[Row] = [{"method": "am-adam"}, {"method": "adam"}, {"method": "adam", "truncated": 25}]
NAMES = {"am-adam": "AM-Adam", "adam": "backprop through time, Adam"}
TIMED = {
    "cuda": "elman-15@mnist-rows:200,elman-15@mnist-rows:1024,gru-1x64@mnist-rows:200,lstm-1x64@mnist-rows:200,"
    "elman-15@mnist-sequential:1024,gru-1x64@mnist-sequential:200,mingru-1x64@mnist-sequential:200",
    "cpu": "elman-15@mnist-rows:200,elman-50@mnist-rows:200,gru-1x64@mnist-rows:200,lstm-1x64@mnist-rows:200,"
    "elman-15@mnist-sequential:200,mingru-1x64@mnist-rows:200",
}


def cases() -> list[Row]:
    return [{"task": task, "model": model, **method} for task in TASKS for model in MODELS for method in METHODS]


def run_of(case: Row, seed: int, part: str) -> Row:
    torch.set_num_threads(1)
    row = case | train(case, seed, part, DEVICE)
    print(json.dumps(row), flush=True)
    return row


def same(row: Row, case: Row, part: str) -> bool:
    known = all(row.get(key) == case.get(key) for key in ("task", "model", "method", "truncated"))
    return known and row.get("measured_on") == part and ("lr" not in case or row["lr"] == case["lr"])


def best(case: Row, rows: list[Row]) -> float:
    """The rate with the smallest error on validation samples, the smallest of those that are equal."""
    return min((row["error"], row["lr"]) for row in rows if same(row, case, "validation"))[1]


def tasks(jobs: int) -> None:
    rows = read(RESULT) if RESULT.exists() else [{"environment": output.environment(DEVICE)}]

    def make(wanted: list[tuple[Row, int, str]]) -> None:
        todo = [each for each in wanted if not any(same(r, each[0], each[2]) and r["seed"] == each[1] for r in rows)]
        for row in parallel(run_of, todo, jobs):
            rows.append(row)
            write(RESULT, rows)

    make([(case | {"lr": lr}, 0, "validation") for case in cases() for lr in RATES])
    make([(case | {"lr": best(case, rows)}, seed, "test") for case in cases() for seed in SEEDS])


def speed() -> None:
    arguments = ["--model", TIMED[DEVICE.type], "--methods", "am-adam,adam", "--device", DEVICE.type, "--threads", "1"]
    arguments += ["--modes", "eager,graph" if DEVICE.type == "cuda" else "eager", "--seconds", "70"]
    if code := run(["speed", *arguments, "--json", str(SPEED[DEVICE.type])]):
        sys.exit(code)


def accuracies() -> str:
    """Test accuracies of the figures with recurrent nets, of ours and of Adam."""
    lines, known = [], load(FIGURES)
    for name in ("fig6", "rnn50", "rows", "pixels"):
        results = Results.read(RESULTS / f"{name}.jsonl")
        for one in known[name].runs:
            if one.method in ("am-adam", "adam") and "paper" not in one.name and not results.missing(one):
                values = results.values(one, epoch=-1)
                spread = f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
                lines.append([one.data, one.model, one.name, str(one.epochs), spread])
    return table(["data", "net", "method", "epochs", "test accuracy"], lines)


def errors() -> str:
    rows, lines = read(RESULT), []
    for case in cases():
        found = [row for row in rows if same(row, case, "test")]
        if found:
            name = NAMES[case["method"]]
            name += f", truncated to {case['truncated']} steps" if "truncated" in case else ""
            values = ", ".join(f"{row['error']:.4f}" for row in sorted(found, key=lambda row: row["seed"]))
            lines.append([TASKS[case["task"]].name, case["model"], name, f"{found[0]['lr']:g}", values])
    return table(["task", "cell, 64 units", "method", "rate", "error of seeds 0, 1, 2"], lines)


def times() -> str:
    lines = []
    for device, path in SPEED.items():
        for row in json.loads(path.read_text())["results"]:
            what = WHERE[device], f"{row['model']}, {row['data']}", str(row["batch_size"]), row["method"], row["mode"]
            lines.append([*what, f"{1000 * row['step_seconds']['median']:.2f}", ratio(row["time_ratio"])])
    return table(["on", "net, data", "batch", "method", "steps", "ms", "time / BPTT-Adam (quartiles)"], lines)


def fill_table() -> None:
    fill(DOCUMENT, accuracies(), "accuracies")
    fill(DOCUMENT, errors(), "tasks")
    fill(DOCUMENT, times(), "times")


def picture() -> None:
    from recurrent_picture import draw

    draw(HERE / "docs/images/recurrent.png")


if __name__ == "__main__":
    commands = {"speed": speed, "table": fill_table, "picture": picture}
    (commands | {"tasks": lambda: tasks(jobs_given(sys.argv))})[sys.argv[1]]()
