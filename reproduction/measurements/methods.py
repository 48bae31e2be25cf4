"""Every method of `altmin.methods` on the nets that it was published for, with AM-Adam and Adam beside it."""

from statistics import mean
from typing import Any

from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.measurements.speed import passes, quartiles
from reproduction.results import words
from reproduction.run import Run
from reproduction.tables import markdown, table

FULL: dict[str, Any] = {"epochs": 50, "batch_size": 5000}
"""Full-batch methods see the data in parts of any size; larger ones are faster."""
INFERENCE: dict[str, Any] = {"options": {"inference_steps": 64, "inference_rate": 0.25}}
"""As published for this net."""
FIRST: dict[str, Any] = {"epochs": 5, "eval_batches": (50,)}
COSINE: dict[str, Any] = {"epochs": 8, "schedule": "cosine"}
DEEP: dict[str, Any] = {"data": "fashion-mnist", "batch_size": 64}
NETS: dict[str, dict[str, dict[str, Any]]] = {
    "mlp-2x100": {
        **dict.fromkeys(("am-adam", "adam", "am-mem", "am-mem-fitted", "am-sgd", "sgd"), FIRST),
        **{f"{name}-offline": {"epochs": 10} for name in ("am-adam", "am-mem", "am-mem-fitted")},
        "proxprop": {"epochs": 5},
        "admm": FULL,
    },
    "mlp-2x500": {"bcd": FULL},
    "tanh-2x500": dict.fromkeys(("am-adam", "adam", "dtp"), COSINE),
    "binary-500": {
        "am-adam": {**COSINE, "options": {"lr": 0.002}},
        "dtp": COSINE,
        "straight-through": {"epochs": 20, "schedule": "cosine"},
    },
    "residual-32x32": {
        **dict.fromkeys(("am-adam", "adam"), DEEP),
        **dict.fromkeys(("predictive-coding", "pc-alm"), DEEP | INFERENCE),
    },
}
RUNS = [Run(method, net, **{"seeds": 3, **own}) for net, each in NETS.items() for method, own in each.items()]
FIGURES = [Figure("methods", "Methods beside AM-Adam and Adam", RUNS, axes=(), minutes=60)]


@table("methods.accuracy")
def accuracy() -> str:
    """At the end of every run, and the time of a pass over the data beside Adam's."""
    found, times = results("methods"), passes()
    lines = []
    for run in RUNS:
        options = ", ".join(f"{name} {value:g}" for name, value in run.options.items()) or "defaults"
        time = None if run.method.startswith("am-") else times.get((run.model, run.method))
        end = words(found.values(run, epoch=-1), ".4f")
        line = [run.data, run.model, f"`{run.method}`", options, f"{run.epochs}, {run.schedule}", end]
        lines.append([*line, quartiles(time) if time and run.method != "adam" else ""])
    return markdown(["data", "net", "method", "options", "epochs", "accuracy", "time of a pass / Adam"], lines)


def after(method: str, epochs: int = 5) -> list[float]:
    """Of a method on mlp-2x100 with its defaults: the mean accuracy after 50 batches, and at the end."""
    (run,) = (run for run in RUNS if (run.model, run.method, run.epochs) == ("mlp-2x100", method, epochs))
    return [mean(results("methods").values(run, **at)) for at in ({"batch": 50}, {"epoch": -1})]
