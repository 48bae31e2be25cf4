"""The time and the memory of models that learn streams; their accuracy is that of the figure `streams`."""

import pickle
import statistics
import time
from typing import Any

from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.measurements.speed import quartiles
from reproduction.results import Row, Setting, words
from reproduction.streams import MODELS, STREAMS, create, samples
from reproduction.tables import markdown, table

PER_ROUND = 50
OURS = "Gauss-Newton"
SERVED = [name for name, model in MODELS.items() if model.serves(regression=False) and model.kind != "baseline"]


def cost(case: Case, seed: int, setting: Setting) -> Row:
    """Microseconds of processor time for a sample of the stream `rbf-drift`, predicted and learnt, by each model in
    turn: the median over rounds, and that of the ratios to Adam's in the same round, with their quartiles; and the
    bytes of each model, pickled, after the stream."""
    from reproduction.streams.methods import MethodClassifier  # which needs river

    data, rounds = samples("rbf-drift", seed), case["rounds"]
    learners = {name: create(name, False, seed) for name in SERVED}
    learners["Adam, fused kernel"] = MethodClassifier("adam", {"lr": 8e-3, "fused": True}, seed=seed)
    taken: dict[str, list[float]] = {name: [] for name in learners}
    for k in range(rounds):
        for name, learner in learners.items():
            started = time.process_time()
            _learn(learner, data[k * PER_ROUND : (k + 1) * PER_ROUND])
            taken[name].append((time.process_time() - started) / PER_ROUND * 1e6)
    found: Row = {}
    for name, learner in learners.items():
        ratios = [a / b for a, b in zip(taken[name][2:], taken["Adam"][2:], strict=True)]  # two rounds to warm up
        q1, median, q3 = statistics.quantiles(ratios, n=4)
        _learn(learner, data[rounds * PER_ROUND :])
        found[name] = {"microseconds": statistics.median(taken[name][2:]), "bytes": len(pickle.dumps(learner))}
        found[name] |= {"median": median, "q1": q1, "q3": q3}
    return {"models": found}


def _learn(learner: Any, data: Any) -> None:
    for x, y in data:
        learner.predict_one(x)
        learner.learn_one(x, y)


COST = Case(cost, {"rounds": 40}, seeds=1, small={"rounds": 5})
FIGURES = [Figure("stream_costs", "Time and memory of models that learn streams", [COST], axes=(), minutes=5)]


@table("streams.cost")
def costs() -> str:
    lines = []
    for name, found in results("stream_costs").all(COST)[0]["models"].items():
        size = f"{found['bytes'] / 1000:,.0f}" if "bytes" in found else ""
        lines.append([name, f"{found['microseconds']:.0f}", quartiles(found), size])
    return markdown(["model", "microseconds a sample", "times Adam's: median (quartiles)", "kilobytes"], lines)


def values() -> dict[tuple[str, str], list[float]]:
    """Of the figure `streams` by stream and model, over seeds."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in results("streams").rows:
        found.setdefault((row["config"]["stream"], row["config"]["model"]), []).append(row["value"])
    return found


def _models(regression: bool) -> str:
    """A line for each model, a column for each stream."""
    found, lines = values(), []
    streams = [name for name, stream in STREAMS.items() if stream.regression == regression]
    for model in MODELS:
        if (streams[0], model) in found:
            lines.append([model, *(_spread(found[stream, model]) for stream in streams)])
    return markdown(["model", *streams], lines)


def _spread(found: list[float]) -> str:
    return words(found if len(set(found)) > 1 else found[:1])


table("streams.accuracy")(lambda: _models(False))
table("streams.error")(lambda: _models(True))


@table("streams.verdict")
def verdict() -> str:
    """On how many streams the default is ahead of other models, by the mean over seeds."""
    found = values()

    def score(stream: str, model: str) -> float:
        return statistics.mean(found[stream, model]) * (-1 if STREAMS[stream].regression else 1)

    def best(stream: str, names: Any) -> float:
        return max(score(stream, name) for name in names if (stream, name) in found)

    lines = []
    for kind, about in (("single", "river's best single model"), ("ensemble", "the best of river's ensembles")):
        others = [name for name, model in MODELS.items() if model.kind == kind]
        behind = [stream for stream in STREAMS if score(stream, OURS) <= best(stream, others)]
        ahead = f"{len(STREAMS) - len(behind)} of {len(STREAMS)} streams"
        lines.append(f"- Gauss-Newton is ahead of {about} on {ahead}, not on {_listed(behind)}.")
    level = [stream for stream in STREAMS if best(stream, ("Adam", "AM-Adam", "AM-mem")) >= score(stream, OURS)]
    return "\n".join([*lines, f"- Adam, AM-Adam or AM-mem are level with it or ahead on {_listed(level)}."])


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
