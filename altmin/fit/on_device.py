"""Whole epochs on a GPU without a wait: data, order, batches and losses all stay there."""

import torch
from torch import Tensor

from altmin.execution.graph import Program, demand_cuda
from altmin.execution.lanes import lane
from altmin.fit.samples import epoch_order
from altmin.methods import Method


def train_on_device(
    method: Method,
    x: Tensor,
    y: Tensor,
    batch_size: int,
    epochs: int = 1,
    seeds: Sequence[int] = (0,),
    shuffle: str = "fit",
    fuse: bool | None = None,
) -> list[float]:
    """Epochs over data that lies on the GPU, each one a row of replays without a wait; the mean losses.

    Batches, their order and the losses stay on the device too. shuffle: "fit" for the order in which `fit` sees the
    data, drawn by the processor; "device" for one drawn on the GPU. Samples beyond the last full batch are seen by an
    ordinary step.
    """
    demand_cuda(method.model)
    samples, full = len(x), len(x) // batch_size
    own = lane(method)
    order = torch.zeros(full, batch_size, dtype=torch.int64, device=x.device)
    cursor = torch.zeros(1, dtype=torch.int64, device=x.device)
    losses = torch.zeros(full, dtype=torch.float64, device=x.device)

    def action() -> Tensor:
        rows = order.index_select(0, cursor).view(batch_size)
        loss = own.advance(x.index_select(0, rows), y.index_select(0, rows))
        losses.index_copy_(0, cursor, loss.detach().view(1).double())
        cursor.add_(1).clamp_(max=full - 1)
        return loss

    program = Program(own, action, fuse)
    means = []
    for epoch in range(epochs):
        drawn = _drawn(samples, seed, epoch, shuffle, x.device)
        order.copy_(drawn[: full * batch_size].view(full, batch_size), non_blocking=True)
        start = 0
        while start < full:
            cursor.fill_(start)
            for _ in range(start, full):
                program.run()
            taken = own.taken()
            start = full if taken is None else start + taken
            if start < full:
                rows = order[start]
                losses[start] = program.apart(method.step, x[rows], y[rows]).loss
                start += 1
            own.forgive()
        total, count = losses.sum(), full
        if rest := samples - full * batch_size:
            rows = drawn[-rest:].to(x.device)
            total, count = total + program.apart(method.step, x[rows], y[rows]).loss, full + 1
        program.apart(method.end_epoch)
        means.append(float(total) / count)
    return means


def _drawn(samples: int, seed: int, epoch: int, shuffle: str, device: torch.device) -> Tensor:
    if shuffle == "fit":
        return epoch_order(samples, seed, epoch)
    if shuffle != "device":
        raise ValueError(f'shuffle is "fit" or "device", given {shuffle!r}')
    generator = torch.Generator(device).manual_seed(hash((seed, epoch)) % 2**32)
    return torch.randperm(samples, generator=generator, device=device)
