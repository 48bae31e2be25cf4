"""How soon nets learn: AM with the solved memory and AM-Adam beside the optimizers of backprop, beyond the paper.

Every method has its rate chosen on validation data with seed 0, from the same grid (for some multiplied by a factor),
which goes on where its end is best; then seeds 0 to 2 are measured on test data.
"""

from statistics import fmean
from typing import Any

from reproduction import Figure, Mark
from reproduction.learning import Opponent, Task, learners

OPPONENTS = [
    Opponent("AM-mem", "am-mem"),
    Opponent("CoActivation", "coactivation"),
    Opponent("AM-Adam", "am-adam", decay=0.01),
    Opponent("Adam", "adam", decay=0.01),
    Opponent("SGD", "sgd", steps=10, decay=0.01),
    Opponent("AdamW", "adamw", {"weight_decay": 0.01}),
    Opponent("Muon", "muon", {"weight_decay": 0.0}),
    Opponent("SOAP", "soap", {"weight_decay": 0.0}),
    Opponent("Shampoo", "shampoo", steps=10),
    Opponent("K-FAC", "kfac", steps=10),
]
FIRST = ("AM-mem", "Adam", "Muon", "SOAP", "K-FAC", "AdamW", "SGD")
MARKS = (25, 50, 150, 250)
RATES = (0.001, 0.002, 0.004, 0.008, 0.016)
LOWER = (0.0005, 0.001, 0.002, 0.004, 0.008)
MNIST: dict[str, Any] = {"data": "mnist", "marks": MARKS, "by_marks": True}
FIVE: dict[str, Any] = {"epochs": 5, "schedule": "linear", "marks": (250, 500, 750, 1000)}
TEN: dict[str, Any] = {"epochs": 10, "marks": (250, 500, 1000, 1500, 2000)}
GPT: dict[str, Any] = {
    **{"model": "gpt-6x128", "data": "shakespeare", "batch_size": 64, "schedule": "cosine"},
    **{"shown": "validation", "precision": "tf32"},
}
TASKS = [
    Task("mlp-2x100", "mlp-2x100, MNIST", {"model": "mlp-2x100", **MNIST}, RATES),
    Task("mlp-20x100", "mlp-20x100, MNIST", {"model": "mlp-20x100", **MNIST}, LOWER),
    Task(
        "mlp-2x100-long",
        "mlp-2x100, MNIST, five epochs",
        {"model": "mlp-2x100", "data": "mnist", **FIVE},
        RATES[:4],
        decays=(0.0, 0.01, 0.1),
    ),
    Task("lenet5", "lenet5, MNIST", {"model": "lenet5", **MNIST}, RATES),
    Task("lenet5-long", "lenet5, MNIST, ten epochs", {"model": "lenet5", "data": "mnist", **TEN}, LOWER),
    Task("fashion", "lenet5, Fashion-MNIST", {"model": "lenet5", "data": "fashion-mnist", **FIVE}, RATES),
    Task(
        "autoencoder",
        "autoencoder, MNIST",
        {
            **{"model": "autoencoder", "data": "mnist-pixels", "batch_size": 1000, "schedule": "linear"},
            **{"parts": ("train", "validation", "test"), "shown": "train", "precision": "tf32"},
        },
        LOWER,
        lengths=[{"epochs": 10}, {"epochs": 20}, {"epochs": 50}],
        steps={"sgd": 1.0, "shampoo": 1.0},
    ),
    Task(
        "resnet18-64",
        "resnet18-64, CIFAR-10",
        {
            **{"model": "resnet18-64", "data": "cifar10", "batch_size": 256, "schedule": "one-cycle"},
            **{"augment": "crop-flip", "refit": True, "parts": ("test",), "precision": "tf32"},
        },
        (0.004, 0.008, 0.016),
        lengths=[{"epochs": 4}, {"epochs": 6}, {"epochs": 12}, {"epochs": 24}],
        decays=(0.05,),
        search={"epochs": 6},
        steps={"sgd": 25.0},
        without=("Adam",),
    ),
    Task(
        "gpt-6x128",
        "gpt-6x128, Shakespeare",
        GPT,
        (0.002, 0.004, 0.008, 0.016),
        lengths=[{"limit": 64 * steps, "warmup": steps // 10} for steps in (300, 400, 1000, 2000)],
        decays=(0.1,),
    ),
    Task(
        "gpt-6x128-long",
        "gpt-6x128, Shakespeare, 3,000 steps",
        {**GPT, "limit": 64 * 3000, "warmup": 300, "marks": (500, 1000, 1500, 2000, 2500)},
        (0.002, 0.004, 0.008, 0.016),
        decays=(0.1,),
    ),
    Task(
        "higgs",
        "mlp-1x300, HIGGS",
        {
            **{"model": "mlp-1x300", "data": "higgs", "limit": 39_621, "epochs": 10, "schedule": "linear"},
            "marks": (50, 100, 200, 500, 1000, 1500),
        },
        RATES,
    ),
    Task(
        "elman-rows",
        "elman-64, rows of MNIST",
        {"model": "elman-64", "data": "mnist-rows", "marks": MARKS, "by_marks": True},
        RATES,
        without=("SGD", "AdamW", "SOAP", "Shampoo", "K-FAC"),
    ),
    Task(
        "anisotropic",
        "two linear layers, anisotropic inputs",
        {
            **{"model": "linear-16", "data": "anisotropic", "batch_size": 256, "limit": 256 * 1000},
            **{"schedule": "linear", "marks": (25, 50, 100, 200, 500)},
        },
        (0.008, 0.016, 0.032, 0.064, 0.128),
    ),
]
PUBLISHED = {
    "K-BFGS": {10: 59.8, 20: 56.3, 50: 53.8},
    "K-FAC": {10: 61.6, 20: 56.7, 50: 53.7},
    "LocoProp-M": {10: 58.7},
}
"""Training losses of the autoencoder by epoch (kbfgs_neurips2020_public, Demo; locoprop-torch)."""
MADE = [learners("learning", task, OPPONENTS) for task in TASKS]

LEARNING = Figure(
    name="learning",
    title="How soon nets learn: every method at its best rate",
    runs=[run for runs, _ in MADE for run in runs],
    axes=("samples",),
    minutes=120,
    log="x",
    first=FIRST,
    searches=[search for _, searches in MADE for search in searches],
    marks=[
        Mark("autoencoder, MNIST", 50_000 * epoch, loss, f"{name} {loss}", "published")
        for name, losses in PUBLISHED.items()
        for epoch, loss in losses.items()
    ],
    quick=lambda run: run.reduced() if run.model in ("mlp-2x100", "lenet5", "linear-16") else None,
)
SOONER: dict[str, Any] = {"timed": "cpu", "marks": tuple(range(25, 251, 25)), "parts": ("test",), "data": "mnist"}
"""Runs whose seconds are compared on two cores. Their rates are those of the figure `learning`."""
SECONDS = Figure(
    name="seconds",
    title="Accuracy against seconds on two cores: every method at its best rate",
    runs=[
        run
        for task in (
            Task("mlp-2x100", "mlp-2x100, MNIST", {"model": "mlp-2x100", **SOONER}, RATES, search=MNIST),
            Task("lenet5", "lenet5, MNIST", {"model": "lenet5", **SOONER}, RATES, search=MNIST),
            Task(
                "fashion",
                "lenet5, Fashion-MNIST",
                {"model": "lenet5", **SOONER, "data": "fashion-mnist", **FIVE, "marks": tuple(range(125, 1250, 125))},
                RATES,
                search={"marks": FIVE["marks"]},
            ),
        )
        for run in learners("learning", task, OPPONENTS)[0]
        if run.name not in ("SGD", "Shampoo", "AdamW" if task.name != "fashion" else "AM-Adam")
    ],
    axes=("samples", "seconds"),
    minutes=12,
    log="x",
    drawn=2,
    first=("CoActivation", *FIRST),
    quick=lambda run: run.reduced() if run.task == "mlp-2x100" else None,
)


def sooner(name: str) -> dict[str, tuple[float, float | None]]:
    """Return of every method of a task the seconds of its run, and those after which it is as good as Adam at the end,
    None if never; means over seeds."""
    runs = [run for run in SECONDS.runs if run.task == name]
    curves: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if rows := SECONDS.results.of(run)[: run.seeds]:
            marks = zip(*(run.points(row, "seconds") for row in rows), strict=True)
            curves[run.name] = [(fmean(x for x, _ in mark), fmean(y for _, y in mark)) for mark in marks]
    found: dict[str, tuple[float, float | None]] = {}
    for method, curve in curves.items():
        found[method] = curve[-1][0], next((x for x, y in curve if y >= curves["Adam"][-1][1]), None)
    return found


FIGURES = [LEARNING, SECONDS]
