"""Whole epochs on a GPU without a wait: data, order, batches and losses all stay there."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import Diverged
from altmin.runners.capture import CapturedStep, captured, check_capturable
from altmin.runners.ensemble import Ensemble
from altmin.runners.programs import Programs, can_fuse, demand_cuda
from altmin.training.augment import drawn as in_two_parts
from altmin.training.config import RunConfig, takes
from altmin.training.explosion import LossWatch, exploded, scale_of
from altmin.training.plan import Plan
from altmin.training.samples import Samples, batch_generator, epoch_order, generator_of
from altmin.training.schedule import Schedule


@takes("epochs", "augment", "schedule", "warmup", "precision")
def train_on_device(
    method: Any,
    x: Tensor,
    y: Tensor,
    batch_size: int,
    seeds: Sequence[int] = (0,),
    shuffle: str = "fit",
    fuse: bool | None = None,
    **settings: Any,
) -> list[Any]:
    """Epochs over data that lies on the GPU, each one a row of replays without a wait; the mean losses.

    method: one whose step can be captured, or an `Ensemble` of such; then seeds has an entry for each member, each sees
    the data in an order of its own, and every epoch has a list of losses. Equal seeds share their batches. shuffle:
    "fit" for the order in which `fit` sees the data, drawn by the processor; "device" for one drawn on the GPU. Samples
    beyond the last full batch are seen by an ordinary step.

    augment, schedule, warmup, precision: as in `fit`, but an augmentation is a name or has `draw` and `apply`. Its
    numbers are drawn before an epoch: those of `fit`, or with shuffle="device" others, on the GPU, that seed and epoch
    fix too. The change itself is part of the recorded step, which reads the rate on the device.

    `Diverged` at the end of an epoch in which a step was not finite, with the weights from before it, or in which the
    loss exploded, as in `fit`; a member of an `Ensemble` takes no further part then.
    """
    demand_cuda(method.model)
    check_capturable(method)
    members = len(method) if isinstance(method, Ensemble) else 1
    if len(seeds) != members:
        raise ValueError(f"a seed for each of {members} members is needed, given {len(seeds)}")
    if shuffle not in ("fit", "device"):
        raise ValueError(f'shuffle is "fit" or "device", given {shuffle!r}')
    run = RunConfig(batch_size=batch_size, **settings)
    plan = Plan(run, (x, y))
    with ExitStack() as during:
        context = during.enter_context(plan.products())
        epochs = _Epochs(plan, method, seeds, shuffle, context)
        epochs.step = captured(method, can_fuse(x.device) if fuse is None else fuse, context)
        during.enter_context(epochs.schedule.during())
        epochs.schedule.begin(0, 0)
        programs = Programs(epochs.step, epochs.action, epochs.tensors, x.device)
        means = [epochs.train(epoch, programs) for epoch in range(run.epochs)]
    return means if isinstance(method, Ensemble) else [mean[0] for mean in means]


class _Epochs:
    """Epochs of full batches, whose step is recorded, and what they read and write on the device: the order of the
    samples, numbers that were drawn for each of them, the batch under way, and the losses."""

    step: CapturedStep

    def __init__(self, plan: Plan, method: Any, seeds: Sequence[int], shuffle: str, context: Context):
        self.method, self.samples, self.shuffle = method, plan.train, shuffle
        run, x, size = plan.run, self.samples[0], plan.run.batch_size
        data = plan.data(method.model, seeds)
        assert data.per_epoch is not None
        assert size is not None
        self.per_epoch, self.size, self.full = data.per_epoch, size, len(x) // size
        self.change = in_two_parts(run.augment, self.samples)
        self.schedule = Schedule(run.schedule, method.optimizer, run.epochs, run.epochs * self.per_epoch, run.warmup)
        if not self.full:
            raise ValueError(f"a full batch is needed to capture, and {size} samples are more than the {len(x)} given")
        self.each = len(set(seeds)) > 1
        self.seeds = list(seeds) if self.each else list(seeds[:1])
        self.how: dict[str, Any] = {"each": self.each} if isinstance(method, Ensemble) else {}
        self.alone = self.how if context is LOCAL else {**self.how, "context": context}
        """What the recorded step takes besides, and the ordinary one."""
        order = (self.full, *[len(seeds)] * self.each, size)
        self.order = torch.zeros(*order, dtype=torch.int64, device=x.device)
        self.numbers = torch.zeros_like(self.order)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=x.device)
        self.losses = torch.zeros(self.full, len(seeds), dtype=torch.float64, device=x.device)
        self.watches = [LossWatch() for _ in seeds]

    def batch(self, rows: Tensor, drawn: Tensor) -> Samples:
        flat = rows.reshape(-1)
        x, y = (t.index_select(0, flat) for t in self.samples)
        inputs, targets = (x, y) if self.change is None else self.change.apply(x, y, drawn.reshape(-1))
        return inputs.view(*rows.shape, *x.shape[1:]), targets.view(*rows.shape, *y.shape[1:])

    def tensors(self) -> list[Tensor]:
        """Everything that `action` changes, except for the losses."""
        return [self.cursor, *self.step.tensors()]

    def action(self, kind: bool) -> Tensor:
        """The function that is recorded, for a kind of step."""
        rows = self.order.index_select(0, self.cursor)[0]
        drawn = rows if self.change is None else self.numbers.index_select(0, self.cursor)[0]
        loss = self.step.losses(self.step.run(*self.batch(rows, drawn), kind, **self.how))
        self.losses.index_copy_(0, self.cursor, loss.view(1, -1))
        self.cursor.add_(1).remainder_(self.full)
        return loss

    def train(self, epoch: int, programs: Programs) -> list[float]:
        """The mean loss of each member in an epoch."""
        full, first = self.full * self.size, epoch * self.per_epoch
        drawn = torch.stack([self._drawn(seed, epoch) for seed in self.seeds], 1)
        for held, new in zip((self.order, self.numbers), drawn, strict=True):
            rows = new[:, :full].unflatten(1, (self.full, self.size)).transpose(0, 1)
            held.copy_(rows.reshape(held.shape), non_blocking=True)
        self.step.push()
        for i in range(self.full):
            if self.schedule.moves and not self.schedule.by_epoch:
                self.schedule.after_batch(first + i)
                self.step.push()
            programs.replay()
        taken = self.step.pull()
        if taken is not None:
            raise Diverged(f"the objective in batch {taken + 1} of {self.per_epoch}, epoch {epoch + 1},")
        self._demand_low(epoch)
        total = self.losses.sum(0)
        if self.per_epoch > self.full:
            self.schedule.after_batch(first + self.full)
            last = drawn[..., full:].to(self.order.device)
            total = total + self.method.step(*self.batch(*(last if self.each else last[:, 0])), **self.alone).loss
        self.method.end_epoch()
        self.schedule.after_epoch(epoch + 1)
        return (total / self.per_epoch).tolist()

    def _demand_low(self, epoch: int) -> None:
        """`Diverged` if the loss of the method exploded in this epoch; members of an ensemble are excluded instead."""
        x, y = self.samples
        for number, losses in enumerate(self.losses.tolist(), 1):
            for i, (watch, loss) in enumerate(zip(self.watches, losses, strict=True)):
                if not math.isfinite(loss) or not watch.explodes(loss, partial(scale_of, x, y)):
                    continue
                if not isinstance(self.method, Ensemble):
                    where = f"the loss in batch {number} of {self.per_epoch}, epoch {epoch + 1},"
                    raise exploded(loss, self.method, x, y, where)
                self.method.exclude(i)

    def _drawn(self, seed: int, epoch: int) -> Tensor:
        """The order in which an epoch sees samples, and what is drawn for each, in that order: int64 (2, samples)."""
        count, change, device = len(self.samples[0]), self.change, self.order.device
        if self.shuffle == "fit":
            order = epoch_order(count, seed, epoch)
            if change is None:
                return torch.stack([order, order])  # nothing reads the second
            batches = enumerate(order.split(self.size))
            numbers = [change.draw(len(rows), batch_generator(seed, epoch, number)) for number, rows in batches]
            return torch.stack([order, torch.cat(numbers)])
        generator = generator_of(f"{seed} {epoch}", device)
        order = torch.randperm(count, generator=generator, device=device)
        return torch.stack([order, order if change is None else change.draw(count, generator)])
