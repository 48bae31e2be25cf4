"""What `train` and `compare` both do: prepare the machine, load the samples, build a method by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from altmin import data, methods, models
from altmin.errors import unknown
from altmin.execution import precision
from altmin.fit import History, batches_per_epoch, fit

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

    def build(self, method: str, options: Mapping[str, Any], seed: int) -> methods.Method:
        return build(self.model, self.problem.data, method, options, seed, self.device, self.freeze_first)

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
