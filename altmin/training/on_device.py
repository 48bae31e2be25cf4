"""Whole epochs on a GPU without a wait: data, order, batches and losses all stay there."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.common.errors import Diverged
from altmin.data.augment import Drawn
from altmin.runners.capture import Program, captured, check_capturable, demand_cuda
from altmin.runners.ensemble import Ensemble
from altmin.training.augment import drawn as in_two_parts
from altmin.training.epochs import Epochs
from altmin.training.samples import batch_generator, epoch_order
from altmin.training.schedule import Schedule
from altmin.training.sources import source


def train_on_device(
    method: Any,
    x: Tensor,
    y: Tensor,
    batch_size: int,
    epochs: int = 1,
    seeds: Sequence[int] = (0,),
    shuffle: str = "fit",
    fuse: bool | None = None,
    augment: Drawn | str | None = None,
    schedule: str = "constant",
    warmup: int = 0,
) -> list[Any]:
    """Epochs over data that lies on the GPU, each one a row of replays without a wait; the mean losses.

    method: one whose step can be captured, or an `Ensemble` of such; then seeds has an entry for each member, each sees
    the data in an order of its own, and every epoch has a list of losses. Equal seeds share their batches. shuffle:
    "fit" for the order in which `fit` sees the data, drawn by the processor; "device" for one drawn on the GPU. Samples
    beyond the last full batch are seen by an ordinary step.

    augment, schedule, warmup: as in `fit`, but an augmentation is a name or has `draw` and `apply`. Its numbers are
    drawn before an epoch: those of `fit`, or with shuffle="device" others, on the GPU, that seed and epoch fix too. The
    change itself is part of the recorded step, which reads the rate on the device.

    `Diverged` at the end of an epoch in which a step was not finite; the weights are those from before it.
    """
    demand_cuda(method.model)
    check_capturable(method)
    together = isinstance(method, Ensemble)
    members = len(method) if together else 1
    if len(seeds) != members:
        raise ValueError(f"a seed for each of {members} members is needed, given {len(seeds)}")
    if shuffle not in ("fit", "device"):
        raise ValueError(f'shuffle is "fit" or "device", given {shuffle!r}')
    per_epoch = Epochs(source("train", (x, y), method.model), method.model, seeds, epochs, batch_size, None).per_epoch
    assert per_epoch is not None
    change = in_two_parts(augment, (x, y))
    plan = Schedule(schedule, method.optimizer, epochs, epochs * per_epoch, warmup)
    full = len(x) // batch_size
    if not full:
        raise ValueError(
            f"a full batch is needed to capture, and {batch_size} samples are more than the {len(x)} given"
        )
    each = len(set(seeds)) > 1
    draws = list(seeds) if each else list(seeds[:1])
    how: dict[str, Any] = {"each": each} if together else {}
    step = captured(method)
    order = torch.zeros(full, *[members] * each, batch_size, dtype=torch.int64, device=x.device)
    numbers = torch.zeros_like(order)
    cursor = torch.zeros(1, dtype=torch.int64, device=x.device)
    losses = torch.zeros(full, members, dtype=torch.float64, device=x.device)

    def batch(rows: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        flat = rows.reshape(-1)
        samples = x.index_select(0, flat), y.index_select(0, flat)
        inputs, targets = samples if change is None else change.apply(*samples, drawn.reshape(-1))
        return inputs.view(*rows.shape, *x.shape[1:]), targets.view(*rows.shape, *y.shape[1:])

    def action() -> Tensor:
        rows, drawn = (t.index_select(0, cursor)[0] for t in (order, numbers))
        loss = step.metrics(step.run(*batch(rows, drawn), **how)).loss
        losses.index_copy_(0, cursor, loss.detach().view(1, members).double())
        cursor.add_(1).remainder_(full)
        return loss

    def train_epoch(epoch: int) -> list[float]:
        found = [_drawn(len(x), batch_size, seed, epoch, shuffle, x.device, change) for seed in draws]
        drawn = torch.stack(found, 1)
        for held, new in zip((order, numbers), drawn, strict=True):
            rows = new[:, : full * batch_size].unflatten(1, (full, batch_size)).transpose(0, 1)
            held.copy_(rows.reshape(held.shape), non_blocking=True)
        step.push()
        for i in range(full):
            if plan.moves and not plan.by_epoch:
                plan.after_batch(epoch * per_epoch + i)
                step.push()
            program.replay()
        taken = step.pull()
        if taken is not None:
            raise Diverged(f"the objective in batch {taken + 1} of {per_epoch}, epoch {epoch + 1},")
        total, count = losses.sum(0), full
        if per_epoch > full:
            plan.after_batch(epoch * per_epoch + full)
            last = drawn[..., full * batch_size :].to(x.device)
            total, count = total + method.step(*batch(*(last if each else last[:, 0])), **how).loss, full + 1
        method.end_epoch()
        plan.after_epoch(epoch + 1)
        return (total / count).tolist()

    with plan.during():
        plan.begin(0, 0)
        program = Program(action, lambda: [cursor, *step.tensors()], fuse)
        means = [train_epoch(epoch) for epoch in range(epochs)]
    return means if together else [mean[0] for mean in means]


def _drawn(
    samples: int, batch_size: int, seed: int, epoch: int, shuffle: str, device: torch.device, change: Drawn | None
) -> Tensor:
    """The order in which an epoch sees the samples, and what is drawn for each, in that order: int64 (2, samples)."""
    if shuffle == "fit":
        order = epoch_order(samples, seed, epoch)
        if change is None:
            return torch.stack([order, order])  # nothing reads the second
        batches = enumerate(order.split(batch_size))
        numbers = [change.draw(len(rows), batch_generator(seed, epoch, number)) for number, rows in batches]
        return torch.stack([order, torch.cat(numbers)])
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "big"))
    order = torch.randperm(samples, generator=generator, device=device)
    return torch.stack([order, order if change is None else change.draw(samples, generator)])
