"""Models whose output for a sample depends on that sample alone are accepted by ranks, and no others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.models import elman, gpt, resnet18
from altmin.runners.rowwise import Rowwise, demand_rowwise


class Of(nn.Module):
    """Linear, and a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


class Running(Of):
    """Keeps the mean of its inputs in a buffer, as a user's own normalisation may."""

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.flatten(0, -2).mean(0), 0.1)
        return super().forward(x)


def encoder(batch_first: bool = True, dropout: float = 0.0) -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=batch_first)


class SequenceFirst(nn.Module):
    """As people call an encoder that takes sequences first."""

    def __init__(self, dropout: float):
        super().__init__()
        self.encoder = encoder(False, dropout)
        self.encoder.self_attn.dropout = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x.transpose(0, 1)).transpose(0, 1)


ROWWISE: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(4, 3),
    "batch norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)),
    "batch norm of a module without a closed form": lambda: Of(lambda x: F.batch_norm(x, None, None, training=True)),
    "instance norm": lambda: nn.InstanceNorm1d(5),
    "dropout": lambda: Of(lambda x: F.dropout(x, 0.9)),
    "dropout in another order": lambda: Of(lambda x: F.dropout(x.transpose(1, 2), 0.5)),
    "dropout of rows of several steps": lambda: Of(lambda x: F.dropout(x.flatten(0, 1), 0.5)),
    "rand_like": lambda: Of(lambda x: x + torch.rand_like(x)),
    "encoder": encoder,
    "encoder that takes sequences first": lambda: SequenceFirst(0.0),
    "one output for a step": lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(0, 1)),
    "recurrence": lambda: elman(6, 5, 4, 3),
}
MIXING: dict[str, Callable[[], nn.Module]] = {
    "mean": lambda: Of(lambda x: x - x.mean(0)),
    "norm": lambda: Of(lambda x: x / x.norm()),
    "sum of rows up to this": lambda: Of(lambda x: x.cumsum(0)),
    "sum of rows from this": lambda: Of(lambda x: x.flip(0).cumsum(0).flip(0)),
    "row by number": lambda: Of(lambda x: x * torch.arange(len(x)).view(-1, 1, 1)),
    "largest of the batch": lambda: Of(lambda x: (x == x.amax(0)).to(x)),
    "encoder over samples": lambda: encoder(False),
    "recurrence over samples": lambda: First(nn.RNN(4, 4)),
    "instance norm with a running mean": lambda: nn.InstanceNorm1d(5, track_running_stats=True),
    "a buffer of the samples' mean": lambda: Running(torch.tanh),
    "dropout of a transposed tensor": lambda: Of(
        lambda x: F.dropout(x.transpose(0, 1).contiguous(), 0.5).transpose(0, 1)
    ),
    "encoder with dropout that takes sequences first": lambda: SequenceFirst(0.5),
}


class First(nn.Module):
    """The first output of a module that has two."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x)[0]


def samples(n: int = 6, steps: int = 5) -> Tensor:
    return torch.randn(n, steps, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize("name", ROWWISE)
def test_a_model_that_computes_each_sample_by_itself_is_accepted_and_left_as_it_is(name: str, n: int) -> None:
    torch.manual_seed(0)
    model = ROWWISE[name]()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    demand_rowwise(model, samples(n))
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize("name", MIXING)
def test_a_model_that_mixes_samples_is_refused(name: str, n: int) -> None:
    """Also one with four steps, as many as there are samples in the test."""
    torch.manual_seed(0)
    for steps in (5, 4):
        model = MIXING[name]()
        if "InstanceNorm" in str(model) and steps == 4:
            continue
        with pytest.raises(ValueError, match=r"depends on the other samples|do not lie one after the other"):
            demand_rowwise(model, samples(n, steps))


def test_images_tokens_and_float32_are_accepted() -> None:
    demand_rowwise(resnet18(2, 4, 1), torch.randn(3, 1, 8, 8))
    demand_rowwise(gpt(1, 8, 2, 5, 4), torch.randint(4, (4, 5)))


def test_differences_of_rounding_alone_are_not_mixing() -> None:
    """x -> 4 x (1 - x), again and again, makes of a rounding in float32 another number."""

    def chaotic(x: Tensor) -> Tensor:
        x = torch.sigmoid(x) + 1e-7 * torch.arange(len(x)).view(-1, 1, 1).to(x) * (x.dtype == torch.float32)
        for _ in range(25):
            x = 3.9 * x * (1 - x)
        return x

    demand_rowwise(Of(chaotic), samples())


def test_an_error_of_the_model_is_left_to_the_step() -> None:
    demand_rowwise(nn.Linear(3, 2), samples())


def test_a_model_is_tried_again_in_another_mode_and_with_samples_that_differ() -> None:
    tried, x = Rowwise(), samples()
    model = Of(lambda x: x - x.mean(0) if model.training else x)
    tried.demand(model, x[:1].expand(3, -1, -1))
    tried.demand(model.eval(), x)
    with pytest.raises(ValueError, match="depends on the other samples"):
        tried.demand(model.train(), x)
