"""The tables of the README and of the pages for users, which quote several measurements."""

from dataclasses import dataclass
from statistics import mean
from typing import Any

from reproduction.figures.rnn50 import FIGURE as ELMAN
from reproduction.measurements import continual, defaults, methods, networks, results, speed, streams
from reproduction.paper import learned
from reproduction.tables import markdown, table

RESULTS = "reproduction/results"


@dataclass(frozen=True)
class Problem:
    """A kind of problem, what was measured on it, what backprop and AM came to, by which AM, and the file."""

    kind: str
    measured: str
    backprop: float | None
    am: float | None
    use: str
    file: str
    name: str = "AM-Adam"


def number(value: float | None) -> str:
    """Four decimals, one of a large number, or two significant digits of a small one."""
    return f"{value:.1f}" if value is not None and value >= 10 else defaults.number(value)


def of_memory(
    kind: str, measured: str, task: str, batch: int, key: str = "test_accuracy", rival: str = "Adam"
) -> Problem:
    values = (learned(task, name, batch, key) for name in (rival, "AM-mem"))
    return Problem(kind, measured, *values, "`am-mem`", f"{RESULTS}/learning.jsonl", "AM-mem")


def of_task(kind: str, task: str, metric: str, use: str) -> Problem:
    values = (defaults.last(task, method) for method in ("adam", "am-adam"))
    return Problem(kind, f"{task}, {metric}", *values, use, f"{RESULTS}/defaults.jsonl")


def of_network(kind: str, measured: str, pair: Any, key: str, use: str, name: str = "AM-Adam") -> Problem:
    values = (mean(networks.at(case, key)) for case in pair)
    return Problem(kind, measured, *values, use, f"{RESULTS}/networks.jsonl", name)


def problems() -> list[Problem]:
    elman = results("rnn50")
    stream, usual = streams.values(), "`am-adam`"
    return [
        of_memory("few samples", "lenet5, accuracy after 25 batches", "lenet5", 25),
        of_memory("images, one pass", "lenet5, accuracy after an epoch", "lenet5", 250),
        of_memory("images, ten passes", "lenet5, accuracy after ten epochs", "lenet5-long", 2500),
        of_memory("images, decaying rate", "lenet5 on Fashion-MNIST, accuracy", "fashion", 1250),
        of_memory("a deep autoencoder", "autoencoder, training loss", "autoencoder", 500, "train_loss"),
        of_memory("images, a large net", "resnet18-64 on CIFAR-10, accuracy, SGD", "resnet18-64", 4704, rival="SGD"),
        of_memory(
            *("text, few steps", "gpt-6x128, loss after 1,000 steps, AdamW", "gpt-6x128", 1000),
            *("validation_loss", "AdamW"),
        ),
        of_task("samples as vectors", "mlp-2x100", "accuracy", usual),
        of_task("images, convolutions", "lenet5", "accuracy", usual),
        of_task("many layers", "mlp-20x100", "accuracy", usual),
        of_task("sparse or one-hot inputs", "onehot", "accuracy", usual),
        of_task("regression, noisy", "friedman", "error", "`loss=nn.MSELoss()`"),
        of_task("regression, smooth", "sine", "error", "`loss=nn.MSELoss()`"),
        of_network(
            *("hundreds of residual layers", "residual-512x32, accuracy", networks.RESIDUAL[32, 512]),
            *("test_accuracy", usual),
        ),
        of_network(
            *("batch norm, shortcuts", "resnet18-64 on CIFAR-10, accuracy", networks.RESNET, "test_accuracy"),
            *("`AltMin` with `LocalSGD`", "AM-SGD"),
        ),
        of_network(
            *("attention", "gpt-6x128, loss", networks.GPTS["gpt-6x128"], "validation_loss"),
            '`order="weights-first"`, the default there',
        ),
        Problem(
            *("sequences, recurrent layers", "elman-50, accuracy"),
            *(
                mean(elman.values(run, epoch=-1))
                for name in ("adam", "am-adam")
                for run in ELMAN.runs
                if run.name == name
            ),
            *("either; backprop is faster", f"{RESULTS}/rnn50.jsonl"),
        ),
        Problem(
            *("a stream, one sample at a time", "bananas stream, accuracy"),
            *(mean(stream["bananas", model]) for model in ("Adam", "Gauss-Newton")),
            *("`OnlineClassifier()`", f"{RESULTS}/streams.jsonl", "Gauss-Newton"),
        ),
        Problem(
            *("tasks in sequence", "split MNIST, accuracy"),
            *(continual.average(name, "split") for name in ("Adam", continual.KEPT)),
            *("`am-mem-fitted` with `forget=1`", f"{RESULTS}/continual.jsonl", "AM-mem-fitted"),
        ),
    ]


@table("choose.problems")
def by_problem() -> str:
    """What AM reaches beside backprop on each kind of problem, and which AM that is."""
    lines = [[each.kind, each.measured, number(each.backprop), number(each.am), each.use] for each in problems()]
    return markdown(["problem", "measured on", "backprop", "AM", "use"], lines)


SHOWN = ("few samples", "a deep autoencoder", "images, a large net", "text, few steps", "samples as vectors")
SHOWN += ("batch norm, shortcuts", "attention", "a stream, one sample at a time", "tasks in sequence")


@table("readme")
def readme() -> str:
    """Some of the problems, and the time of a step on two cores."""
    lines = [
        [each.measured, number(each.backprop), number(each.am), each.name, f"[results]({each.file})"]
        for each in problems()
        if each.kind in SHOWN
    ]
    time = f"{step('am-adam')['time_ratio']['median']:.2f}"
    lines.append(["mlp-2x100, time of a step", "1.00", time, "AM-Adam", f"[results]({RESULTS}/speed.jsonl)"])
    return markdown(["measured", "backprop", "AM", "method", "file"], lines)


def step(method: str) -> dict[str, Any]:
    """A step of mlp-2x100 on two cores."""
    (row,) = (r for r in speed.rows("cpu", "ordinary") if (r["net"], r["method"]) == ("mlp-2x100", method))
    return row


@table("choose.methods")
def by_method() -> str:
    """Six ways to train one net, with what a step costs on two cores."""
    lines = []
    for method in ("am-adam", "adam", "am-mem", "am-mem-fitted", "am-sgd", "sgd"):
        cost = ["", ""]
        if not method.endswith("sgd"):
            row = step(method)
            cost = [f"{row['time_ratio']['median']:.2f}", f"{row['memory_ratio']:.2f}"]
        lines.append([f"`{method}`", *map(number, methods.after(method)), *cost])
    return markdown(["method", "after 50 batches", "after 5 epochs", "step time / Adam", "peak memory / Adam"], lines)


@table("memory")
def memory() -> str:
    """The memory beside the optimizers of backprop."""
    cases = [
        ("lenet5, MNIST, accuracy", "lenet5", 25, "test_accuracy"),
        ("lenet5, MNIST, accuracy", "lenet5", 250, "test_accuracy"),
        ("mlp-2x100, MNIST, accuracy", "mlp-2x100", 250, "test_accuracy"),
        ("lenet5, Fashion-MNIST, decay to 0, accuracy", "fashion", 1250, "test_accuracy"),
        ("autoencoder, training loss", "autoencoder", 500, "train_loss"),
        ("resnet18-64, CIFAR-10, one cycle, accuracy", "resnet18-64", 4704, "test_accuracy"),
        ("gpt-6x128, validation loss", "gpt-6x128", 1000, "validation_loss"),
    ]
    names = ["Adam", "AdamW", "SGD", "Muon", "SOAP", "K-FAC", "CoActivation", "AM-mem"]
    lines = []
    for about, task, batch, key in cases:
        values = [learned(task, name, batch, key) for name in names]
        lines.append([about, f"{batch:,}", *("" if value is None else number(value) for value in values)])
    return markdown(["task", "batches", *names], lines)
