"""Networks with branches: AM beside backprop with the same recipe, the same first weights and the same batches.

A ResNet-18 on CIFAR-10, transformers on tiny Shakespeare at the best of `RATES`, residual MLPs of depth 8 to 512; and
along the share in both orders.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import mean
from typing import Any

import torch
from torch import nn

import altmin
from altmin.common import precision
from altmin.common.errors import Diverged
from altmin.data import RandomWindows
from altmin.methods.backprop import Backprop
from altmin.training import fit
from altmin.training.samples import Samples
from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import Row, Setting, words
from reproduction.tables import markdown, table

IMAGES: Row = {
    **{"data": "cifar10", "optimizer": "sgd", "lr": 0.2, "schedule": "one-cycle", "batch_size": 256},
    "augment": "crop-flip",
}
TEXT: Row = {"data": "shakespeare", "optimizer": "adamw", "schedule": "cosine", "batch_size": 64}
CLOTHES: Row = {"data": "fashion-mnist", "optimizer": "adam", "lr": 0.001, "batch_size": 128}
MARKS = [30, 60, 90, 120, 600, 3000]
RATES, BEST = (0.001, 0.002), 0.004
"""Of the transformers: the last is the best for both methods, by the validation loss of seed 0."""
DEPTHS, WIDTHS = (8, 32, 128, 512), (32, 128)
SHARES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
FIRST, LAST = "codes-first", "weights-first"

SGD: Row = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
ADAMW: Row = {"betas": (0.9, 0.99), "weight_decay": 0.1}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, **SGD, fused=True),
    "adam": partial(torch.optim.Adam, fused=True),
    "adamw": partial(torch.optim.AdamW, **ADAMW, fused=True),
}
LOCAL: dict[str, Callable[[float], Any]] = {
    "sgd": lambda lr: altmin.LocalOptimizer(OPTIMIZERS["sgd"], lr),
    "adam": lambda lr: altmin.LocalAdam(lr),
    "adamw": lambda lr: altmin.LocalAdam(lr, **ADAMW, decoupled_weight_decay=True),
}
"""The same optimizers as rules for the weights of AM, by rate."""


def train(case: Case, seed: int, setting: Setting) -> Row:
    """One run, with what was measured after some batches and each epoch."""
    get, known = case.settings.get, altmin.data.dataset(case["data"])
    samples, parts = prepared(case, seed, setting)
    torch.manual_seed(seed)
    model = altmin.models.create(case["model"], known.sample_shape, known.classes, known.tokens).to(setting.device)
    kind = "tf32" if setting.device.type == "cuda" else "float32"
    row: Row = {"precision": kind}
    start = time.perf_counter()
    with precision.using(kind):
        try:
            history = fit(
                method(case, model),
                samples,
                parts,
                epochs=get("epochs", 1),
                batch_size=case["batch_size"],
                seed=seed,
                eval_batches=get("marks", ()),
                schedule=get("schedule", "constant"),
                warmup=get("warmup", 0),
                augment=get("augment"),
                metrics="loss" if known.tokens else "accuracy",
            )
            row["points"] = [*history.batches, *history.epochs]
        except Diverged as error:
            row["diverged"] = str(error)
    return {**row, "seconds": round(time.perf_counter() - start, 1)}


def prepared(case: Case, seed: int, setting: Setting) -> tuple[Samples, dict[str, Samples]]:
    """Training samples, of a text windows at random places; and those to measure on."""
    x, y = setting.samples(case["data"], "train", case.settings.get("limit"))
    parts = {part: setting.samples(case["data"], part) for part in ("validation", "test")}
    if case.settings.get("refit"):
        (more, labels), parts = parts["validation"], {"test": parts["test"]}
        x, y = torch.cat([x, more]), torch.cat([y, labels])
    if steps := case.settings.get("steps"):
        text = RandomWindows(x, y)
        x, y = text.apply(x, y, text.draw(steps * case["batch_size"], torch.Generator().manual_seed(seed)))
    return (x, y), parts


def method(case: Case, model: nn.Module) -> Any:
    """With the recipe's optimizer: for AM on each block's own problem."""
    factory, lr = OPTIMIZERS[case["optimizer"]], case["lr"]
    if case["method"] == "backprop":
        return Backprop(model, factory(model.parameters(), lr=lr))
    return altmin.AltMin(model, codes=altmin.GradientCodes(**case.options), weights=LOCAL[case["optimizer"]](lr))


def both(
    model: str, recipe: Row, order: str = FIRST, share: float = 0.1, seeds: int = 2, small: Row | None = None
) -> list[Case]:
    """Backprop and AM."""
    made = Case(train, {"model": model, "method": "backprop", **recipe}, seeds=seeds, small=small or SMALL)
    return [made, am(made, share, order)]


def am(backprop: Case, share: float, order: str) -> Case:
    options = {"share": share, "order": order}
    return Case(train, {**backprop.settings, "method": "am"}, options, seeds=backprop.seeds, small=backprop.small)


SMALL: Row = {"limit": 500, "epochs": 1}
FEW: Row = {"limit": 500, "steps": 4, "marks": [2], "warmup": 1}
LONG = TEXT | {"warmup": 100, "steps": 3000, "marks": MARKS}
SHORT = TEXT | {"lr": 0.002, "warmup": 20, "steps": 600, "marks": [120, 600]}
RESNET = both("resnet18-64", IMAGES | {"epochs": 24, "refit": True})
GPTS = {model: both(model, LONG | {"lr": BEST}, LAST, small=FEW) for model in ("gpt-6x128", "gpt-12x128")}
TRIED = [each for model in GPTS for lr in RATES for each in both(model, LONG | {"lr": lr}, LAST, seeds=1, small=FEW)]
RESIDUAL = {(width, depth): both(f"residual-{depth}x{width}", CLOTHES) for width, depth in product(WIDTHS, DEPTHS)}
DIAL = {
    "gpt-4x64": both("gpt-4x64", SHORT, small=FEW)[0],
    "resnet18-32": both("resnet18-32", IMAGES | {"epochs": 4})[0],
}
ALONG = [
    am(backprop, share, order)
    for backprop, share, order in product(DIAL.values(), SHARES, (FIRST, LAST))
    if share or order == FIRST  # without a move both orders are the same
]
RUNS = [*RESNET, *(each for pair in (*GPTS.values(), *RESIDUAL.values()) for each in pair), *TRIED, *DIAL.values()]
FIGURES = [Figure("networks", "ResNets and transformers by AM and by backprop", [*RUNS, *ALONG], axes=(), minutes=300)]


def at(case: Case, measure: str, batch: int | None = None) -> list[float]:
    """By seed, a measure after a batch, or at the end."""
    found = []
    for row in results("networks").all(case):
        points = [each for each in row["points"] if batch is None or each.get("batch") == batch]
        found.append(points[-1][measure])
    return found


@table("networks.accuracy")
def accuracy() -> str:
    """Test accuracy at the end."""
    pairs = {"resnet18-64, CIFAR-10, 24 epochs": RESNET}
    pairs |= {f"residual, width {w}, depth {d}, Fashion-MNIST": pair for (w, d), pair in RESIDUAL.items()}
    lines = []
    for name, pair in pairs.items():
        b, a = (at(case, "test_accuracy") for case in pair)
        lines.append([name, words(b, ".4f"), words(a, ".4f"), f"{mean(a) - mean(b):+.4f}"])
    return markdown(["net", "backprop", "AM", "AM - backprop"], lines)


@table("networks.gpt")
def gpt() -> str:
    """Validation loss along the steps."""
    lines = []
    for model, pair in GPTS.items():
        for each in pair:
            losses = [f"{mean(at(each, 'validation_loss', step)):.4f}" for step in MARKS]
            lines.append([model, each["method"], *losses, words(at(each, "test_loss"), ".4f")])
    return markdown(["net", "method", *(f"{step:,} steps" for step in MARKS), "test loss at the end"], lines)


@table("networks.share")
def along() -> str:
    """At the end, for every share and order."""
    lines = []
    for (model, backprop), order in product(DIAL.items(), (FIRST, LAST)):
        measure = "validation_loss" if model.startswith("gpt") else "test_accuracy"
        cells = [
            words(at(am(backprop, share, order), measure), ".4f") if share or order == FIRST else "" for share in SHARES
        ]
        lines.append([f"{model}, {measure.replace('_', ' ')}", order, words(at(backprop, measure), ".4f"), *cells])
    return markdown(["net", "order", "backprop", *(f"share {share:g}" for share in SHARES)], lines)
