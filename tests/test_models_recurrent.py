"""The Elman network is its recursion, and padding changes nothing."""

import pytest
import torch
from torch import Tensor, nn

from altmin.models import elman, pad


def by_hand(model: nn.Sequential, x: Tensor, length: int) -> Tensor:
    """h_t = tanh(U x_t + W h_{t-1} + b), z_t = V h_t, the classifier over max(z, 0), for x (steps, inputs)."""
    named = {name: p.detach() for name, p in model[0].named_parameters()}
    U, W, b = named["weight_ih_l0"], named["weight_hh_l0"], named["bias_ih_l0"]
    h, z = torch.zeros(len(W), dtype=x.dtype), torch.zeros(length, dtype=x.dtype)
    for t, step in enumerate(x):
        h = torch.tanh(U @ step + W @ h + b)
        z[t] = model[1].weight.detach()[0] @ h
    return model[-1].weight.detach() @ z.clamp_min(0) + model[-1].bias.detach()


def test_an_elman_network_is_its_recursion() -> None:
    torch.manual_seed(0)
    model, x = elman(4, length=6, inputs=2, outputs=3).double(), torch.randn(5, 6, 2, dtype=torch.float64)
    expected = torch.stack([by_hand(model, sample, 6) for sample in x])
    torch.testing.assert_close(model(x).detach(), expected)


def test_padded_sequences_are_read_as_if_each_were_alone() -> None:
    torch.manual_seed(0)
    model = elman(4, length=6, inputs=2, outputs=3, padded=True).double()
    sequences = [torch.randn(steps, 2, dtype=torch.float64) for steps in (6, 1, 4)]
    expected = torch.stack([by_hand(model, sample, 6) for sample in sequences])
    torch.testing.assert_close(model(pad(sequences, 6)).detach(), expected)


@pytest.mark.parametrize(
    "sequences, words",
    [
        ([torch.zeros(3, 1)], "sequences of up to 2 steps are wanted, the longest given has 3"),
        ([], "the longest given has 0"),
        ([torch.zeros(2, 1), torch.zeros(2, 2)], r"the same number of inputs, given \(2, 1\), \(2, 2\)"),
    ],
)
def test_sequences_that_cannot_be_padded_are_refused(sequences: list[Tensor], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pad(sequences, 2)
