"""The tables of the README and of the pages for users, which quote several measurements."""

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import Any, NamedTuple

from reproduction.case import Case
from reproduction.figures import learning, recurrent
from reproduction.measurements import continual, defaults, methods, networks, results, speed, streams
from reproduction.paper import learned
from reproduction.tables import markdown, table

RESULTS = "reproduction/results"


class Problem(NamedTuple):
    """A kind of problem, what was measured on it, what backprop and AM came to, how AM is used, by which name, and the
    file of results."""

    kind: str
    measured: str
    values: tuple[float | None, float | None]
    use: str = "`am-adam`"
    name: str = "AM-Adam"
    file: str = "learning"


def number(value: float | None) -> str:
    """Four decimals, one of a large number, or two significant digits of a small one."""
    return f"{value:.1f}" if value is not None and value >= 10 else defaults.number(value)


def of_memory(kind: str, measured: str, task: str, batch: int, key: str, rival: str = "Adam") -> Problem:
    values = learned(task, rival, batch, key), learned(task, "AM-mem", batch, key)
    return Problem(kind, measured, values, "`am-mem`", "AM-mem")


def of_task(kind: str, task: str, metric: str = "accuracy", use: str = "`am-adam`") -> Problem:
    values = defaults.last(task, "adam"), defaults.last(task, "am-adam")
    return Problem(kind, f"{task}, {metric}", values, use, file="defaults")


def of_network(pair: Sequence[Case], key: str) -> tuple[float, float]:
    backprop, am = (mean(networks.at(case, key)) for case in pair)
    return backprop, am


def of_elman() -> tuple[float, float]:
    adam, am = (run for name in ("adam", "am-adam") for run in recurrent.RNN50.runs if run.name == name)
    return mean(results("rnn50").values(adam, epoch=-1)), mean(results("rnn50").values(am, epoch=-1))


def problems() -> list[Problem]:
    """Return all that choose.md shows, from what the memory does to streams and tasks in sequence."""
    accuracy, stream = "test_accuracy", streams.values()
    bananas = mean(stream["bananas", "Adam"]), mean(stream["bananas", "Gauss-Newton"])
    split = continual.average("Adam", "split"), continual.average(continual.KEPT, "split")
    resnet = of_network(networks.RESNET, accuracy)
    deep = of_network(networks.RESIDUAL[32, 512], accuracy)
    gpt = of_network(networks.GPTS["gpt-6x128"], "validation_loss")
    text = "gpt-6x128, loss after 1,000 steps, AdamW"
    return [
        of_memory("few samples", "lenet5, accuracy after 25 batches", "lenet5", 25, accuracy),
        of_memory("images, one pass", "lenet5, accuracy after an epoch", "lenet5", 250, accuracy),
        of_memory("images, ten passes", "lenet5, accuracy after ten epochs", "lenet5-long", 2500, accuracy),
        of_memory("images, decaying rate", "lenet5 on Fashion-MNIST, accuracy", "fashion", 1250, accuracy),
        of_memory("a deep autoencoder", "autoencoder, training loss", "autoencoder", 500, "train_loss"),
        of_memory("images, large net", "resnet18-64 on CIFAR-10, accuracy, SGD", "resnet18-64", 4704, accuracy, "SGD"),
        of_memory("text, few steps", text, "gpt-6x128", 1000, "validation_loss", "AdamW"),
        of_task("samples as vectors", "mlp-2x100"),
        of_task("images, convolutions", "lenet5"),
        of_task("many layers", "mlp-20x100"),
        of_task("sparse or one-hot inputs", "onehot"),
        of_task("regression, noisy", "friedman", "error", "`loss=nn.MSELoss()`"),
        of_task("regression, smooth", "sine", "error", "`loss=nn.MSELoss()`"),
        Problem("hundreds of residual layers", "residual-512x32, accuracy", deep, file="networks"),
        Problem(
            *("batch norm, shortcuts", "resnet18-64 on CIFAR-10, accuracy", resnet),
            *("`AltMin` with `LocalSGD`", "AM-SGD", "networks"),
        ),
        Problem("attention", "gpt-6x128, loss", gpt, '`order="weights-first"`, the default there', file="networks"),
        Problem("sequences, recurrent layers", "elman-50, accuracy", of_elman(), "either; backprop is faster", "rnn50"),
        Problem(
            *("a stream, one sample at a time", "bananas stream, accuracy", bananas),
            *("`OnlineClassifier()`", "Gauss-Newton", "streams"),
        ),
        Problem(
            *("tasks in sequence", "split MNIST, accuracy", split),
            *("`am-mem-fitted` with `forget=1`", "AM-mem-fitted", "continual"),
        ),
    ]


@table("choose.problems")
def by_problem() -> str:
    """What AM reaches beside backprop on each kind of problem, and which AM that is."""
    lines = [[each.kind, each.measured, *map(number, each.values), each.use] for each in problems()]
    return markdown(["problem", "measured on", "backprop", "AM", "use"], lines)


SHOWN = (
    "samples as vectors",
    "batch norm, shortcuts",
    "attention",
    "a stream, one sample at a time",
    "tasks in sequence",
)
CHOSEN = (
    ("LeNet-5, MNIST, 25 batches", "lenet5", 25, "lenet5"),
    ("LeNet-5, Fashion-MNIST, five epochs", "fashion", 1250, "lenet5"),
    ("Elman net, rows of MNIST, 150 batches", "elman-rows", 150, ""),
    ("784-100-100-10, MNIST, an epoch", "mlp-2x100", 250, "mlp-2x100"),
    ("GPT of six layers, 1,000 steps: loss", "gpt-6x128", 1000, "gpt-6x128"),
    ("LeNet-5, MNIST, an epoch", "lenet5", 250, "lenet5"),
    ("20 layers of 100, MNIST, an epoch", "mlp-20x100", 250, ""),
    ("784-100-100-10, MNIST, five epochs", "mlp-2x100-long", 1250, "mlp-2x100"),
    ("deep autoencoder, ten epochs: loss", "autoencoder", 500, ""),
)
"""Of README: what, the task, after which batch, and the net whose step is timed."""
RIVALS = ("Muon", "SOAP", "K-FAC", "SGD")


@table("readme")
def readme() -> str:
    """Some of the problems that the memory has nothing to do with, and the price of a step."""
    lines = [
        [each.measured, *map(number, each.values), f"[{each.name}]({RESULTS}/{each.file}.jsonl)"]
        for each in problems()
        if each.kind in SHOWN
    ]
    time = f"{step('am-adam')['time_ratio']['median']:.2f}"
    lines.append(["mlp-2x100, time of a step", "1.00", time, f"[AM-Adam]({RESULTS}/speed.jsonl)"])
    return markdown(["measured", "backprop", "AM", "by"], lines)


@table("readme.memory")
def gain() -> str:
    """Where the memory is ahead of Adam and of the best of other optimizers, and where it is not, with its price."""
    found: dict[str, list[list[str]]] = {"use it for": [], "not for": []}
    for about, task, batch, net in CHOSEN:
        key = {"autoencoder": "train_loss", "gpt-6x128": "validation_loss"}.get(task, "test_accuracy")
        sign, first = -1 if key.endswith("loss") else 1, "AdamW" if task == "gpt-6x128" else "Adam"
        measured = {name: learned(task, name, batch, key) for name in (first, *RIVALS, "CoActivation")}
        values = {name: value for name, value in measured.items() if value is not None}
        adam, ours = values.pop(first), values.pop("CoActivation")
        best = max(values, key=lambda name: sign * values[name])
        cost = f"{step('coactivation', net)['time_ratio']['median']:.2f}" if net else ""
        ahead = sign * ours > max(sign * adam, sign * values[best])
        baseline = number(adam) + ", AdamW" * (first == "AdamW")
        line = [about, baseline, f"{number(values[best])}, {best}", number(ours), cost]
        found["use it for" if ahead else "not for"].append(line)
    head = ["Adam", "best other", "CoActivation", "its step / Adam's"]
    return "\n\n".join(markdown([title, *head], lines) for title, lines in found.items())


def step(method: str, net: str = "mlp-2x100") -> dict[str, Any]:
    """A step on two cores, of the GPT on a GPU."""
    rows = speed.rows("cuda", "memory-gpt") if net == "gpt-6x128" else speed.rows("cpu", "ordinary")
    (row,) = (r for r in rows if (r["model"], r["method"]) == (net, method))
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


@table("memory.gpu")
def on_gpu() -> str:
    """The time of the memory's steps on a GPU, and until the GPT has AdamW's loss."""
    steps = {(row["model"], row["method"]): row for row in speed.rows("cuda", "memory", "memory-resnet", "memory-gpt")}
    ratios = {net: row["time_ratio"]["median"] for (net, method), row in steps.items() if method == "coactivation"}
    each = ", ".join(f"{ratio:.2f} on {net}" for net, ratio in sorted(ratios.items(), key=lambda pair: pair[1]))
    of = partial(learned, "gpt-6x128", measured="validation_loss")
    seconds = [
        f"{batches * steps['gpt-6x128', method]['step_seconds']['median']:.2f}"
        for method, batches in (("coactivation", 400), ("adam", 1000))
    ]
    losses = f"{of('CoActivation', 400):.3f}", f"{of('AdamW', 1000):.3f}"
    return f"""\
On an H200, with recorded steps, a step of CoActivation takes this many times Adam's: {each}.
Of the GPT, 400 of its steps ({seconds[0]} s) come to a loss of {losses[0]}, 1,000 of AdamW's
({seconds[1]} s by Adam's time) to {losses[1]}."""


@table("memory.seconds")
def seconds() -> str:
    """Of every method at its best rate the seconds of a run on two cores, and those until it is as good as Adam is at
    its end, relative to Adam's."""
    tasks = {name: learning.sooner(name) for name in ("mlp-2x100", "lenet5", "fashion")}
    lines = []
    for method in dict.fromkeys(method for runs in tasks.values() for method in runs):
        cells = []
        for runs in tasks.values():
            whole, until = runs.get(method, (None, None))
            adam = runs["Adam"][0]
            cells += ["" if whole is None else f"{whole / adam:.2f}", "never" if whole and not until else ""]
            if until is not None:
                cells[-1] = f"{until / adam:.2f}"
        lines.append([method, *cells])
    heads = [f"{name}, {what}" for name in tasks for what in ("all", "to Adam's end")]
    return markdown(["method", *heads], lines)
