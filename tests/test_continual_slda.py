"""Streaming LDA against LDA of all samples at once, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from altmin.continual.slda import StreamingLDA, slda


def clusters(samples: int, classes: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    y = torch.randint(classes, (samples,))
    mixing = torch.randn(size, size, dtype=torch.float64)
    return 5 + torch.randn(classes, size, dtype=torch.float64)[y] + torch.randn_like(
        mixing[0].expand(samples, -1)
    ) @ mixing, y


def at_once(x: Tensor, y: Tensor, classes: int, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Weights and biases of the discriminant: means and covariance from all samples."""
    means = torch.stack([x[y == k].mean(0) for k in range(classes)])
    C = sum(torch.outer(a - means[k], a - means[k]) for a, k in zip(x, y, strict=True)) / len(x)
    assert isinstance(C, Tensor)
    C = (1 - shrinkage) * C + shrinkage * C.trace() / len(C) * torch.eye(len(C), dtype=C.dtype)
    weights = means @ torch.linalg.inv(C)
    return weights, torch.stack([-0.5 * m @ torch.linalg.inv(C) @ m for m in means])


@given(st.integers(0, 5), st.integers(1, 40), st.sampled_from([1e-4, 0.1, 1.0]), st.booleans())
def test_mini_batches_in_any_order_give_the_discriminant_of_all_samples(
    seed: int, batch: int, shrinkage: float, sorted_by_class: bool
) -> None:
    x, y = clusters(60, 3, 4, seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    learner = slda(model, shrinkage)
    order = y.argsort() if sorted_by_class else torch.arange(60)
    for rows in order.split(batch):
        learner.step(x[rows], y[rows])
    learner.end_epoch()
    weights, biases = at_once(x, y, 3, shrinkage)
    torch.testing.assert_close(model[-1].weight.detach(), weights)
    torch.testing.assert_close(model[-1].bias.detach(), biases)


def test_its_discriminant_is_the_logarithm_of_the_normal_densities_up_to_what_classes_share() -> None:
    x, y = clusters(200, 3, 2, 0)
    model = nn.Sequential(nn.Linear(2, 3)).double()
    learner = slda(model, 0.1)
    learner.step(x, y)
    learner.end_epoch()
    C = 0.9 * learner.scatter / 200 + 0.1 * learner.scatter.trace() / 400 * torch.eye(2, dtype=torch.float64)
    log_density = torch.stack([torch.distributions.MultivariateNormal(m, C).log_prob(x) for m in learner.means], 1)
    with torch.no_grad():
        difference = model(x) - log_density
    torch.testing.assert_close(difference, difference[:, :1].expand(-1, 3))


def test_layers_before_the_last_stay_as_they_are_and_make_the_features() -> None:
    x, y = clusters(50, 3, 4, 1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    before = [p.detach().clone() for p in model[0].parameters()]
    learner = slda(model, 0.1)
    learner.step(x, y)
    learner.end_epoch()
    assert all(torch.equal(a, b) for a, b in zip(before, model[0].parameters(), strict=True))
    with torch.no_grad():
        weights, _ = at_once(model[:2](x), y, 3, 0.1)
    torch.testing.assert_close(model[-1].weight.detach(), weights)


def test_a_class_not_seen_yet_is_never_predicted() -> None:
    x, y = clusters(50, 4, 3, 2)
    model = nn.Sequential(nn.Linear(3, 4)).double()
    learner = slda(model)
    known = y < 2
    learner.step(x[known], y[known])
    learner.end_epoch()
    assert set(model(x).argmax(1).tolist()) <= {0, 1}
    learner.step(x, y)
    learner.end_epoch()
    assert set(model(x).argmax(1).tolist()) == {0, 1, 2, 3}


def test_the_loss_of_a_step_is_that_before_it() -> None:
    x, y = clusters(20, 3, 4, 3)
    model = nn.Sequential(nn.Linear(4, 3)).double()
    expected = nn.functional.cross_entropy(model(x), y)
    torch.testing.assert_close(slda(model).step(x, y).loss, expected.detach())


def test_what_cannot_be_set_is_refused() -> None:
    for model in (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2)):
        with pytest.raises(ValueError, match=r"last layer of an nn.Sequential; end it with an nn.Linear"):
            StreamingLDA(model)  # type: ignore[arg-type]
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="shrinkage of StreamingLDA must be a finite number above 0, given 0"):
        slda(model, 0.0)
    with pytest.raises(ValueError, match=r"shrinkage of StreamingLDA lies between 0 and 1, given 1\.5"):
        slda(model, 1.5)
