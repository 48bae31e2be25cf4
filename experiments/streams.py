"""The time and memory of the models of docs/streams.md: `python experiments/streams.py cost`, `... memory`, then
`... table`.

`cost`: the time that the processor spends on a sample, predicted and learnt, by Adam and the others in turn, so that
whatever else the machine does meets all alike. `memory`: the bytes that each model keeps after a stream. Both are kept
in benchmarks/streams.jsonl. `table` fills docs/streams.md from this file and from reproduction/results/streams.jsonl,
to which `reproduction figure streams --threads 1` adds the accuracy of every model on every stream; it trains nothing.
"""

import argparse
import pickle
import statistics
import time
from typing import Any

import torch
from common import HERE, read, write
from stream_table import fill_tables

from altmin.stream import OnlineClassifier
from reproduction.streams import MODELS, create, samples

RESULTS = HERE / "benchmarks/streams.jsonl"
ROUNDS, PER_ROUND = 40, 50


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
    commands.add_parser("cost", help="time a sample")
    commands.add_parser("memory", help="count the bytes that models keep")
    commands.add_parser("table", help="fill docs/streams.md")
    given = parser.parse_args()
    if given.command == "cost":
        cost()
    elif given.command == "memory":
        memory()
    else:
        fill_tables(RESULTS)
