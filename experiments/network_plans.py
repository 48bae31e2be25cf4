"""The parts of experiments/networks.py: which runs each of them makes, at full size and in small."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from network_cost import Timing
from network_grains import GRAINS
from network_runs import Recipe, Training

Run = Training | Timing
ORDERS = ("codes-first", "weights-first")
SHARES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
METHODS = ("backprop", "am")
IMAGES = Recipe("cifar10", "sgd", 0.2, "one-cycle", 256, epochs=24, augment="crop-flip")
TEXT = Recipe("shakespeare", "adamw", 1e-3, "cosine", 64, warmup=100, steps=3000, evaluate=(30, 60, 90, 120, 600, 3000))
CLOTHES = Recipe("fashion-mnist", "adam", 1e-3, "constant", 128)
RATES = (1e-3, 2e-3, 4e-3)
"""Of the transformers, for both methods; the table takes the one with the best last validation loss of seed 0."""
GPTS, QUICK_GPTS = ("gpt-6x128", "gpt-12x128"), ("gpt-1x8",)
DEPTHS, WIDTHS = (8, 32, 128, 512), (32, 128)


def quick(recipe: Recipe) -> Recipe:
    """The same in seconds: few samples, made up where they are images, and few steps."""
    small = replace(recipe, batch_size=8, epochs=2, limit=16)
    return small if recipe.steps is None else replace(small, epochs=1, steps=4, evaluate=(2, 4), warmup=1)


def given_recipe(recipe: Recipe, given: Namespace) -> Recipe:
    """The recipe with what was given on the command line in place of its own."""
    names = ("lr", "batch_size", "epochs", "mode", "precision", "whole")
    chosen: dict[str, Any] = {name: getattr(given, name, None) for name in names}
    if chosen["precision"] is None:
        chosen["precision"] = "tf32" if given.device.type == "cuda" else "float32"
    small = quick(recipe) if given.quick else recipe
    return replace(small, **{name: value for name, value in chosen.items() if value is not None})


def resnet(given: Namespace) -> Iterator[Run]:
    model = "resnet18-2" if given.quick else f"resnet18-{given.width or 64}"
    own = {"share": _or(given.share, 0.1), "order": given.order or "codes-first"}
    for seed in given.seeds:
        for method in METHODS:
            yield Training("resnet", model, method, seed, given_recipe(IMAGES, given), **own)


def gpt(given: Namespace) -> Iterator[Run]:
    own = {"share": _or(given.share, 0.1), "order": given.order or "weights-first"}
    for model in QUICK_GPTS if given.quick else GPTS:
        for seed in given.seeds:
            for rate in RATES if given.lr is None else (given.lr,):
                for method in METHODS:
                    recipe = replace(given_recipe(TEXT, given), lr=rate)
                    yield Training("gpt", model, method, seed, recipe, **own)


def residual(given: Namespace) -> Iterator[Run]:
    own = {"share": _or(given.share, 0.1), "order": given.order or "codes-first"}
    for width in (8,) if given.quick else WIDTHS:
        for depth in (2, 3) if given.quick else DEPTHS:
            model, recipe = f"residual-{depth}x{width}", given_recipe(CLOTHES, given)
            if given.quick:
                recipe = replace(recipe, epochs=1)
            for seed in given.seeds:
                for method in METHODS:
                    yield Training("residual", model, method, seed, recipe, **own)
            for mode in _modes(given, ("eager", "graph")):
                yield _timing("residual", model, "fashion-mnist", recipe.batch_size, given, (mode,), memory=False)


def dial(given: Namespace) -> Iterator[Run]:
    """Backprop; every share in both orders with the library's cuts; every other grain of the cuts with one share.

    With a share of 0, or with one block, AM is backprop in either order, and one run shows it.
    """
    nets = {
        "resnet18-2" if given.quick else "resnet18-32": replace(IMAGES, epochs=4),
        "gpt-1x8" if given.quick else "gpt-4x64": replace(TEXT, steps=600, evaluate=(120, 600), lr=2e-3, warmup=20),
    }
    for model, base in nets.items():
        for seed in given.seeds:
            run = Training("dial", model, "backprop", seed, given_recipe(base, given))
            yield run
            am = replace(run, method="am")
            for share in SHARES:
                for order in ORDERS[: 2 if share else 1]:
                    yield replace(am, share=share, order=order)
            for grain in GRAINS:
                for order in ORDERS[: 1 if grain == "one block" else 2]:
                    if grain != "residual":
                        yield replace(am, grain=grain, order=order)


def cost(given: Namespace) -> Iterator[Run]:
    gpu = given.device.type == "cuda"
    nets: list[tuple[str, str, int, str]] = [
        ("residual-32x32", "fashion-mnist", 128, "codes-first"),
        ("residual-32x128", "fashion-mnist", 128, "codes-first"),
        ("resnet18-32", "cifar10", 128 if gpu else 64, "codes-first"),
        *([("resnet18-64", "cifar10", 128, "codes-first")] if gpu else []),
        ("gpt-6x128", "shakespeare", 64 if gpu else 16, "weights-first"),
    ]
    if given.quick:
        nets = [("residual-2x8", "fashion-mnist", 4, "codes-first"), ("gpt-1x8", "shakespeare", 2, "weights-first")]
    for model, data, batch_size, order in nets:
        for seed in given.seeds[:1]:
            chosen = tuple(_modes(given, ("eager", "graph", "compile")))
            yield _timing("cost", model, data, batch_size, given, chosen, seed=seed, order=order)


PLANS: dict[str, Callable[[Namespace], Iterator[Run]]] = {
    "resnet": resnet,
    "gpt": gpt,
    "residual": residual,
    "dial": dial,
    "cost": cost,
}


def selected(runs: Sequence[Run], only: str | None) -> list[Run]:
    """The runs that `--only` names: alternatives with commas between them, each of words with slashes between them that
    a run must all have. ValueError for an alternative that names none."""
    if only is None:
        return list(runs)
    kept: list[Run] = []
    for alternative in only.split(","):
        wanted = set(alternative.strip().split("/"))
        found = [run for run in runs if wanted <= set(run.words)]
        if not found:
            words = dict.fromkeys(word for run in runs for word in run.words)
            raise ValueError(f"--only {alternative} names no run; words of runs are: {', '.join(words)}")
        kept += [run for run in found if run not in kept]
    return kept


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _modes(given: Namespace, on_gpu: Sequence[str]) -> Sequence[str]:
    if given.modes:
        return given.modes
    return on_gpu if given.device.type == "cuda" else ("eager",)


def _timing(
    part: str, model: str, data: str, batch_size: int, given: Namespace, modes: tuple[str, ...], **more: Any
) -> Timing:
    recipe = given_recipe(CLOTHES, given)
    seconds = 0.2 if given.quick else given.seconds
    made = Timing(part, model, data, batch_size, modes, seconds=seconds, precision=recipe.precision, **more)
    return replace(made, device=given.device.type)
