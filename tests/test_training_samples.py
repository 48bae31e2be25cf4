"""Which samples an epoch sees, and in how many batches."""

import torch
from torch import nn

from altmin.training import batches_per_epoch, epoch_order
from altmin.training.samples import batch_generator, device_of


def test_seeds_and_epochs_do_not_share_orders() -> None:
    orders = {tuple(epoch_order(30, seed, epoch).tolist()) for seed in (-1, 0, 1, 2, 2**40) for epoch in range(6)}
    assert len(orders) == 30


def test_an_order_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    epoch_order(10, 0, 0)
    assert torch.equal(torch.rand(3), expected)


def test_every_batch_has_random_numbers_of_its_own_that_are_the_same_again() -> None:
    def drawn(*key: int) -> int:
        return int(torch.randint(2**60, (), generator=batch_generator(*key)))

    keys = [(seed, epoch, batch) for seed in (0, 1, 12) for epoch in (0, 1, 11) for batch in (0, 1, 2, 11)]
    assert len({drawn(*key) for key in keys}) == len(keys)
    assert [drawn(*key) for key in keys] == [drawn(*key) for key in keys]


def test_batches_are_as_many_as_it_takes_for_all_samples() -> None:
    """Counted by cutting a list; a last one of a single sample is nothing to batch norm."""
    plain, normed = nn.Linear(1, 2), nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.BatchNorm2d(2)))
    for samples in range(1, 14):
        for size in range(1, 6):
            sizes = [min(size, samples - start) for start in range(0, samples, size)]
            assert batches_per_epoch(plain, samples, size) == len(sizes)
            left_out = size > 1 and len(sizes) > 1 and sizes[-1] == 1
            assert batches_per_epoch(normed, samples, size) == len(sizes) - left_out


def test_a_model_without_parameters_is_on_the_cpu() -> None:
    assert device_of(nn.ReLU()) == torch.device("cpu")
    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")
