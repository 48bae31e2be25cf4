"""f is the paper's eq. 3, per sample."""

import pytest
import reference
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import altmin

F64 = torch.float64


def model_and_codes(seed: int = 0) -> tuple[nn.Sequential, Tensor, Tensor, list[Tensor]]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.randn(7, 4, dtype=F64), torch.randint(3, (7,))
    return model, x, y, [torch.randn(7, 5, dtype=F64), torch.randn(7, 6, dtype=F64)]


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0, 40.0])
def test_f_is_the_mean_over_samples_of_the_papers_equation(mu):
    model, x, y, codes = model_and_codes()
    ours = altmin.objective(altmin.split(model), codes, x, y, mu, nn.CrossEntropyLoss())
    torch.testing.assert_close(ours, reference.f(reference.of(model), x, y, codes, mu, reference.cross_entropy))


def test_f_with_the_squared_error_is_the_mean_over_samples_of_the_papers_equation():
    model, x, _, codes = model_and_codes()
    y = torch.randn(7, 3, dtype=F64)
    ours = altmin.objective(altmin.split(model), codes, x, y, 0.7, nn.MSELoss())
    torch.testing.assert_close(ours, reference.f(reference.of(model), x, y, codes, 0.7, reference.squared_error))


def test_of_a_loss_that_sums_f_is_the_sum():
    model, x, y, codes = model_and_codes()
    chain = altmin.split(model)
    mean = altmin.objective(chain, codes, x, y, 0.7, nn.CrossEntropyLoss())
    total = altmin.objective(chain, codes, x, y, 0.7, nn.CrossEntropyLoss(reduction="sum"))
    torch.testing.assert_close(total, 7 * mean)


def test_at_the_encoded_codes_f_is_the_loss_whatever_mu():
    model, x, y, _ = model_and_codes()
    codes = [model[:1](x), model[:3](x)]
    for mu in (0.01, 100.0):
        ours = altmin.objective(altmin.split(model), codes, x, y, mu, nn.CrossEntropyLoss())
        torch.testing.assert_close(ours, F.cross_entropy(model(x), y))


def test_f_of_codes_in_time_is_refused():
    model = altmin.models.elman(3, 5)
    with pytest.raises(ValueError, match="f of codes in time is not computed from given codes"):
        altmin.objective(altmin.split(model), [], torch.zeros(4, 5, 1), torch.zeros(4).long(), 1.0, None)
