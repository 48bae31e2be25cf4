"""What `train` and `compare` both do: prepare the machine, load the samples, build a method by name."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from altmin import data, methods, models
from altmin.errors import Diverged, unknown
from altmin.execution import Recorded, precision
from altmin.execution.ensemble import Ensemble
from altmin.fit import History, Progress, batches_per_epoch, fit, fit_ensemble

Samples = tuple[Tensor, Tensor]


def prepare(device: str, threads: int | None, products: str = "float32") -> torch.device:
    """The device by name, if this machine has it and it has products of this precision."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise unknown("device", device, ["cpu", "cuda"])
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} is not available: torch {torch.__version__} finds "
            f"{torch.cuda.device_count()} CUDA devices here; use --device cpu"
        )
    if threads is not None:
        torch.set_num_threads(threads)
    precision.check(products, torch.device(kind))
    return torch.device(device)


@dataclass(frozen=True)
class Problem:
    """A data set as a run needs it. `measure` names what is measured: the accuracy on `test`."""

    data: data.Dataset
    train: Samples
    test: Samples
    measure: str


def load(name: str, data_dir: Path | None, validation: bool, limit: int | None, device: torch.device) -> Problem:
    """The samples of a data set, on the device."""
    known = data.dataset(name)
    part = "validation" if validation else "test"
    x, y = data.load(name, "train", data_dir)
    samples = [(x[:limit], y[:limit]), data.load(name, part, data_dir)]
    train, test = ((a.to(device), b.to(device)) for a, b in samples)
    return Problem(known, train, test, f"{part}_accuracy")


def build(
    model: str,
    known: data.Dataset,
    method: str,
    options: Mapping[str, Any],
    seed: int,
    device: torch.device,
    freeze_first: bool = False,
) -> methods.Method:
    """A method on a model whose first weights, and dropout later on, depend on the seed alone."""
    torch.manual_seed(seed)
    net = models.create(model, known.sample_shape, known.classes).to(device)
    if freeze_first:
        models.freeze_first(net)
    return methods.create(method, net, **options)


@dataclass(frozen=True)
class Trial:
    """All that several runs have in common."""

    problem: Problem
    model: str
    epochs: int
    batch_size: int
    schedule: str
    device: torch.device
    freeze_first: bool = False
    precision: str = "float32"
    record: bool = False

    def build(self, method: str, options: Mapping[str, Any], seed: int) -> methods.Method:
        made = build(self.model, self.problem.data, method, options, seed, self.device, self.freeze_first)
        return Recorded(made) if self.record else made

    @property
    def per_epoch(self) -> int:
        net = models.create(self.model, self.problem.data.sample_shape, self.problem.data.classes)
        return batches_per_epoch(net, len(self.problem.train[0]), self.batch_size)

    def run(self, method: str, options: Mapping[str, Any], seed: int, **more: Any) -> History:
        """Build and train; `more` goes to `fit`."""
        with precision.using(self.precision):
            return fit(
                self.build(method, options, seed),
                self.problem.train,
                self.problem.test,
                epochs=self.epochs,
                batch_size=self.batch_size,
                seed=seed,
                schedule=self.schedule,
                measure=self.problem.measure,
                **more,
            )

    def attempt(
        self,
        method: str,
        options: Mapping[str, Any],
        seed: int,
        early: Sequence[int],
        tick: Callable[[int], None],
        before: int,
    ) -> dict[str, Any]:
        """One run as a row of a result; if it diverges, what it came to and why it stopped, so that others go on."""
        reached, failure = History(), {}

        def report(at: Progress) -> None:
            nonlocal reached
            reached = at.history
            tick(before + at.batch)

        try:
            reached = self.run(method, options, seed, eval_batches=early, report=report)
        except Diverged as error:
            failure = {"diverged": str(error)}
        return {"seed": seed, **asdict(reached), **failure}

    def run_seeds(
        self, method: str, options: Mapping[str, Any], seeds: Sequence[int], early: Sequence[int], tick: Any
    ) -> list[dict[str, Any]]:
        """A run for each seed, as rows of a result: all at once where that is faster and the method allows it."""
        ensemble = self.ensemble(method, options, seeds) if self.together else None
        if ensemble is None:
            rows: list[dict[str, Any]] = []
            for seed in seeds:
                label = functools.partial(tick, text=f"seed {seed}")
                rows.append(self.attempt(method, options, seed, early, label, self.epochs * self.per_epoch * len(rows)))
            return rows
        with precision.using(self.precision):
            histories = fit_ensemble(
                ensemble,
                self.problem.train,
                self.problem.test,
                epochs=self.epochs,
                batch_size=self.batch_size,
                seeds=seeds,
                eval_batches=early,
                schedule=self.schedule,
                measure=self.problem.measure,
                report=lambda at: tick(at.batch * len(seeds), f"loss {at.train_loss:.4f}"),
            )
        found = [{"seed": seed, **asdict(history)} for seed, history in zip(seeds, histories, strict=True)]
        return [{key: value for key, value in row.items() if value is not None} for row in found]

    @property
    def together(self) -> bool:
        """Whether seeds train faster together: one run leaves most of a GPU idle, but keeps a CPU busy."""
        return self.device.type == "cuda"

    def ensemble(self, method: str, options: Mapping[str, Any], seeds: Sequence[int]) -> Any:
        """A member for each seed; None if they cannot be trained together."""
        own = (self.device, self.freeze_first)
        members = [build(self.model, self.problem.data, method, options, seed, *own) for seed in seeds]
        try:
            together = Ensemble(members)
        except ValueError:
            return None
        return Recorded(together) if self.record else together
