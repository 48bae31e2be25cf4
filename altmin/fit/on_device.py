"""Whole epochs on a GPU without a wait: data, order, batches and losses all stay there."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.errors import Diverged
from altmin.execution.capture import Program, captured, check_capturable, demand_cuda
from altmin.execution.ensemble import Ensemble
from altmin.fit.run import check
from altmin.fit.samples import epoch_order


def train_on_device(
    method: Any,
    x: Tensor,
    y: Tensor,
    batch_size: int,
    epochs: int = 1,
    seeds: Sequence[int] = (0,),
    shuffle: str = "fit",
    fuse: bool | None = None,
) -> list[Any]:
    """Epochs over data that lies on the GPU, each one a row of replays without a wait; the mean losses.

    method: one whose step can be captured, or an `Ensemble` of such; then seeds has an entry for each member, each sees
    the data in an order of its own, and every epoch has a list of losses. Equal seeds share their batches. shuffle:
    "fit" for the order in which `fit` sees the data, drawn by the processor; "device" for one drawn on the GPU. Samples
    beyond the last full batch are seen by an ordinary step. `Diverged` at the end of an epoch in which a step was not
    finite; the weights are those from before it.
    """
    demand_cuda(method.model)
    check_capturable(method)
    together = isinstance(method, Ensemble)
    members = len(method) if together else 1
    if len(seeds) != members:
        raise ValueError(f"a seed for each of {members} members is needed, given {len(seeds)}")
    if shuffle not in ("fit", "device"):
        raise ValueError(f'shuffle is "fit" or "device", given {shuffle!r}')
    per_epoch, _ = check(method.model, (x, y), None, epochs, batch_size, ())
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
    cursor = torch.zeros(1, dtype=torch.int64, device=x.device)
    losses = torch.zeros(full, members, dtype=torch.float64, device=x.device)

    def batch(rows: Tensor) -> tuple[Tensor, Tensor]:
        flat = rows.reshape(-1)
        return tuple(t.index_select(0, flat).view(*rows.shape, *t.shape[1:]) for t in (x, y))  # type: ignore[return-value]

    def action() -> Tensor:
        loss = step.metrics(step.run(*batch(order.index_select(0, cursor)[0]), **how)).loss
        losses.index_copy_(0, cursor, loss.detach().view(1, members).double())
        cursor.add_(1).remainder_(full)
        return loss

    program = Program(action, lambda: [cursor, *step.tensors()], fuse)
    means = []
    for epoch in range(epochs):
        drawn = torch.stack([_drawn(len(x), seed, epoch, shuffle, x.device) for seed in draws])
        rows = drawn[:, : full * batch_size].unflatten(1, (full, batch_size)).transpose(0, 1)
        order.copy_(rows.reshape(order.shape), non_blocking=True)
        step.push()
        for _ in range(full):
            program.replay()
        taken = step.pull()
        if taken is not None:
            raise Diverged(f"the objective in batch {taken + 1} of {per_epoch}, epoch {epoch + 1},")
        total, count = losses.sum(0), full
        if per_epoch > full:
            last = drawn[:, full * batch_size :].to(x.device)
            found = method.step(*batch(last if each else last[0]), **how).loss
            total, count = total + found, full + 1
        method.end_epoch()
        mean = (total / count).tolist()
        means.append(mean if together else mean[0])
    return means


def _drawn(samples: int, seed: int, epoch: int, shuffle: str, device: torch.device) -> Tensor:
    if shuffle == "fit":
        return epoch_order(samples, seed, epoch)
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "big"))
    return torch.randperm(samples, generator=generator, device=device)
