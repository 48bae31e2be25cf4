"""Training runs of experiments/networks.py: a recipe that is the same for both methods, and one run of it."""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import torch
from common import Row
from network_grains import cuts
from torch import Tensor, nn

import altmin
from altmin.common.errors import Diverged
from altmin.methods.backprop import Backprop
from altmin.runners import precision
from altmin.training import Progress, fit
from reproduction.speed import modes

Samples = tuple[Tensor, Tensor]
SPLITS = ("train", "validation", "test")
EVERY = 20.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class Where:
    """On which device, with data from which folder (None: where `altmin.data` looks)."""

    device: torch.device = torch.device("cpu")  # noqa: RUF009
    data_dir: str | None = None


@dataclass(frozen=True)
class Recipe:
    """What AM and backprop have in common.

    optimizer: a name in `OPTIMIZERS`. warmup: in batches. steps: of a text the number of batches, each of windows drawn
    at random; else None, and `epochs` passes over the training samples are made. evaluate: after how many batches to
    measure, besides the end of each epoch. whole: whether to train on training and validation samples together. limit:
    how many samples of each split, if not all; a data set of images is then made up, and no file is needed.
    """

    data: str
    optimizer: str
    lr: float
    schedule: str
    batch_size: int
    warmup: int = 0
    epochs: int = 1
    steps: int | None = None
    evaluate: tuple[int, ...] = ()
    augment: str | None = None
    precision: str = "float32"
    mode: str = "eager"
    whole: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Training:
    """One run. method: "am" or "backprop"; share, order and grain are those of AM."""

    part: str
    model: str
    method: str
    seed: int
    recipe: Recipe
    share: float = 0.1
    order: str = "codes-first"
    grain: str = "residual"

    @property
    def words(self) -> list[str]:
        """By which `--only` finds the run."""
        own = [f"share{self.share:g}", self.order, self.grain.replace(" ", "-")] if self.method == "am" else []
        return [self.model, self.method, f"seed{self.seed}", f"lr{self.recipe.lr:g}", *own]

    def identity(self) -> Row:
        """The beginning of the run's row. `CannotCut` if the net cannot be cut so."""
        config: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.recipe).items()}
        if self.method == "am":
            at, _ = self.cuts()
            config |= {"share": self.share, "order": self.order, "grain": self.grain, "at": at}
        return {
            "part": self.part,
            "model": self.model,
            "method": self.method,
            "seed": self.seed,
            "config": config,
        }

    def cuts(self) -> tuple[list[str] | None, list[str]]:
        """Where AM cuts the net, and which places of this grain the library refuses."""
        return cuts(build(self.model, self.recipe.data), self.grain)

    def execute(self, where: Where) -> Row:
        """Trains; the rest of the run's row. A run that leaves the finite numbers has the reason under "diverged"."""
        recipe = self.recipe
        train, parts = prepared(recipe, self.seed, where)
        torch.manual_seed(self.seed)
        model = build(self.model, recipe.data).to(where.device)
        at, refused = self.cuts() if self.method == "am" else (None, [])
        lines, start = Lines("/".join(self.words)), time.perf_counter()
        found: Row = {"parameters": sum(p.numel() for p in model.parameters()), "refused": refused}
        with precision.using(recipe.precision):
            method = self.trainer(model, at)
            if self.method == "am":
                found["blocks"] = len(method.chain)
            try:
                history = fit(
                    modes.apply(recipe.mode, method),
                    train,
                    parts,
                    epochs=recipe.epochs,
                    batch_size=recipe.batch_size,
                    seed=self.seed,
                    eval_batches=recipe.evaluate,
                    schedule=recipe.schedule,
                    warmup=recipe.warmup,
                    augment=recipe.augment,
                    metrics="loss" if altmin.data.dataset(recipe.data).tokens else "accuracy",
                    callbacks=[lines],
                )
                found["rows"] = [*history.batches, *history.epochs]
            except Diverged as error:
                found |= {"rows": lines.rows, "diverged": str(error)}
        return found | {"seconds": round(time.perf_counter() - start, 1)}

    def trainer(self, model: nn.Module, at: list[str] | None) -> Any:
        """The method, with the recipe's optimizer: for AM on each block's own problem."""
        factory, lr = OPTIMIZERS[self.recipe.optimizer], self.recipe.lr
        if self.method == "backprop":
            return Backprop(model, factory(model.parameters(), lr=lr))
        codes = altmin.GradientCodes(share=self.share, order=self.order)
        return altmin.AltMin(model, codes=codes, weights=LOCAL[self.recipe.optimizer](lr), at=at)


SGD: dict[str, Any] = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
ADAMW: dict[str, Any] = {"betas": (0.9, 0.99), "weight_decay": 0.1}
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


class Lines:
    """Progress as lines on stderr: what was measured since the last one, or after `EVERY` seconds how far it is."""

    def __init__(self, name: str):
        self.name, self.when = name, time.monotonic()
        self.rows: list[Row] = []
        """All rows so far."""

    def on_batch_end(self, progress: Progress) -> None:
        self.rows = [*progress.history.batches, *progress.history.epochs]
        new = progress.history.batches[-1:]
        measured = bool(new) and new[0]["batch"] == progress.batch
        if measured or time.monotonic() - self.when >= EVERY:
            self._show(progress, new[0] if measured else {})

    def on_epoch_end(self, progress: Progress) -> None:
        self.rows = [*progress.history.batches, *progress.history.epochs]
        self._show(progress, progress.row)

    def _show(self, progress: Progress, row: Row) -> None:
        self.when = time.monotonic()
        measured = "".join(f", {name} {row[name]:.4f}" for name in progress.columns if name in row)
        at = f"batch {progress.batch} of {progress.batches}, train loss {progress.train_loss:.4f}"
        print(f"{self.name}: {at}{measured}", file=sys.stderr, flush=True)


def build(model: str, data: str) -> nn.Sequential:
    """The net by its name for samples of a data set, with weights from torch's random state."""
    known = altmin.data.dataset(data)
    return altmin.models.create(model, known.sample_shape, known.classes, known.tokens)


def prepared(recipe: Recipe, seed: int, where: Where) -> tuple[Samples, dict[str, Samples]]:
    """Training samples, and those to measure on by the name of the split, all on the device."""
    loaded = {split: samples(recipe.data, split, recipe.limit, where) for split in SPLITS}
    train = loaded["train"]
    measured = ["test"] if recipe.whole else ["validation", "test"]
    if recipe.whole:
        train = tuple(torch.cat(both) for both in zip(train, loaded["validation"], strict=True))  # type: ignore[assignment]
    if recipe.steps is not None:
        train = random_windows(train, recipe.steps * recipe.batch_size, seed)
    return train, {split: loaded[split] for split in measured}


@cache
def samples(data: str, split: str, limit: int | None, where: Where) -> Samples:
    """A split on the device. With a limit: so many windows of a text, or made-up images whose labels can be learnt."""
    known = altmin.data.dataset(data)
    if limit is None or known.tokens:
        x, y = altmin.data.load(data, split, where.data_dir)
        x, y = x[:limit], y[:limit]
    else:
        generator = torch.Generator().manual_seed(SPLITS.index(split))
        x = torch.randn(limit, *known.sample_shape, generator=generator)
        y = x.flatten(1)[:, : known.classes].argmax(1)
    return x.to(where.device), y.to(where.device)


def random_windows(text: Samples, count: int, seed: int) -> Samples:
    """So many windows at random places of a text, which is given as windows that follow each other; the labels of a
    window are the tokens after each of its own."""
    x, y = text
    tokens, context = torch.cat([x.flatten(), y[-1, -1:]]), x.shape[1]
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(tokens) - context, (count, 1), generator=generator)
    drawn = tokens[(starts + torch.arange(context + 1)).to(tokens.device)]
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
