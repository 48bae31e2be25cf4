"""The figures of docs/streams.md: `python experiments/streams.py run`, `... cost`, then `... table`.

`run`: every model predicts each sample of a stream and then learns it, one at a time, and its progressive accuracy,
or mean absolute error, is measured; one line of benchmarks/streams.jsonl for each stream, model and seed. A run that
is there already is not made again. --only STREAM,MODEL,... makes those of the streams and models named, --seeds 0,1
those of these seeds, --out FILE puts them elsewhere, and `... merge FILE...` takes them from there. `cost`: the time
that the processor spends on a sample, predicted and learnt, by Adam and the others in turn, so that whatever else the
machine does meets all alike. `memory`: the bytes that each model keeps after a stream. `table` fills docs/streams.md
and draws docs/images/streams.png from the file, and trains nothing.
"""

import argparse
import itertools
import pickle
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import HERE, Row, read, write
from stream_data import STREAMS, samples
from stream_models import MODELS, create
from stream_table import fill_tables

from altmin.cli import output
from altmin.stream import OnlineClassifier

RESULTS = HERE / "benchmarks/streams.jsonl"
SEEDS = (0, 1, 2)
POINTS = 50
"""How many points a curve of progressive accuracy has."""
ROUNDS, PER_ROUND = 40, 50


def progressive(stream: str, model: str, seed: int) -> Row:
    """Each sample is predicted, then learnt. `value`: the accuracy, or the mean absolute error, over the whole stream;
    `curve`: the same over each of `POINTS` parts of equal length."""
    data, learner = samples(stream, seed), create(model, STREAMS[stream].regression, seed)
    scores, started = [], time.perf_counter()
    for x, y in data:
        predicted = learner.predict_one(x)
        scores.append(abs(y - (predicted or 0.0)) if STREAMS[stream].regression else float(predicted == y))
        learner.learn_one(x, y)
    part = len(scores) // POINTS
    curve = [round(statistics.mean(scores[k * part : (k + 1) * part]), 4) for k in range(POINTS)]
    return {
        "stream": stream,
        "model": model,
        "seed": seed,
        "samples": len(scores),
        "value": round(statistics.mean(scores), 5),
        "curve": curve,
        "seconds": round(time.perf_counter() - started, 1),
    }


def run(only: Sequence[str], path: Path, seeds: Sequence[int]) -> None:
    rows = read(path) if path.exists() else [{"environment": output.environment(torch.device("cpu"))}]
    done = {(row["stream"], row["model"], row["seed"]) for row in rows if "value" in row}
    models = [name for name in MODELS if name in only] or list(MODELS)
    streams = [name for name in STREAMS if name in only] or list(STREAMS)
    for model, stream, seed in itertools.product(models, streams, seeds):
        if (stream, model, seed) not in done and MODELS[model].serves(STREAMS[stream].regression):
            rows.append(progressive(stream, model, seed))
            write(path, rows)
            print(stream, model, seed, rows[-1]["value"], f"{rows[-1]['seconds']} s", flush=True)


def merge(files: Sequence[Path]) -> None:
    """Adds the rows of other files to those of `RESULTS`, in the order of models and streams."""
    rows = [row for path in [RESULTS, *files] if path.exists() for row in read(path)]
    places = {(model, stream): n for n, (model, stream) in enumerate(itertools.product(MODELS, STREAMS))}
    runs = {(row["model"], row["stream"], row["seed"]): row for row in rows if "value" in row}
    ordered = sorted(runs.items(), key=lambda item: (places[item[0][:2]], item[0][2]))
    environment = next(row for row in rows if "environment" in row)
    write(
        RESULTS, [environment, *(row for _, row in ordered), *(row for row in rows if "cost" in row or "memory" in row)]
    )


def cost() -> None:
    """Microseconds a sample on the stream `rbf-drift`: the median over rounds, and that of the ratios to Adam's in the
    same round, with their quartiles."""
    data = samples("rbf-drift", 0)
    served = [name for name, model in MODELS.items() if model.serves(regression=False) and model.kind != "baseline"]
    learners = {name: create(name, False, 0) for name in served}
    learners["Gauss-Newton (one net, 32-32)"] = OnlineClassifier((32, 32), members=1, seed=0)
    learners["Adam, fused kernel"] = OnlineClassifier(method="adam", options={"fused": True}, seed=0)
    taken: dict[str, list[float]] = {name: [] for name in learners}
    for k in range(ROUNDS):
        part = data[k * PER_ROUND : (k + 1) * PER_ROUND]
        for name, learner in learners.items():
            started = time.process_time()
            for x, y in part:
                learner.predict_one(x)
                learner.learn_one(x, y)
            taken[name].append((time.process_time() - started) / PER_ROUND * 1e6)
    rows: list[Any] = [row for row in read(RESULTS) if "cost" not in row]
    for name in taken:
        ratios = [a / b for a, b in zip(taken[name][2:], taken["Adam"][2:], strict=True)]  # two rounds to warm up
        q1, median, q3 = statistics.quantiles(ratios, n=4)
        found = {"microseconds": round(statistics.median(taken[name][2:]), 1), "median": round(median, 3)}
        rows.append({"cost": name, **found, "q1": round(q1, 3), "q3": round(q3, 3), "rounds": ROUNDS - 2})
        print(rows[-1])
    write(RESULTS, rows)


def memory() -> None:
    """Bytes of each classifier, pickled, after the stream `rbf-drift`."""
    rows: list[Any] = [row for row in read(RESULTS) if "memory" not in row]
    data = samples("rbf-drift", 0)
    for name in MODELS:
        if MODELS[name].serves(regression=False):
            learner = create(name, False, 0)
            for x, y in data:
                learner.learn_one(x, y)
            rows.append({"memory": name, "bytes": len(pickle.dumps(learner))})
            print(rows[-1], flush=True)
    write(RESULTS, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="make the runs that are not there yet")
    running.add_argument("--only", default="", help="streams and models, separated by commas")
    running.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    running.add_argument("--out", type=Path, default=RESULTS)
    commands.add_parser("merge", help="take runs from other files").add_argument("files", nargs="+", type=Path)
    commands.add_parser("cost", help="time a sample")
    commands.add_parser("memory", help="count the bytes that models keep")
    commands.add_parser("table", help="fill docs/streams.md and draw its picture")
    given = parser.parse_args()
    if given.command == "run":
        run(given.only.split(","), given.out, [int(seed) for seed in given.seeds.split(",")])
    elif given.command == "merge":
        merge(given.files)
    elif given.command == "cost":
        cost()
    elif given.command == "memory":
        memory()
    else:
        fill_tables(RESULTS)
