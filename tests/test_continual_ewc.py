"""The Fisher information against a loop over samples, the penalty's gradient against autograd, in float64."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from altmin.continual.ewc import ElasticWeights, ewc, fisher
from altmin.methods.backprop import Backprop


def problem(samples: int = 7) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    return model, torch.randn(samples, 3, dtype=torch.float64), torch.arange(samples) % 3


def looped_fisher(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    squares = [torch.zeros_like(p) for p in model.parameters()]
    for sample, label in zip(x, y, strict=True):
        log_p = log_softmax(model(sample[None]), 1)[0, label]
        for total, g in zip(squares, torch.autograd.grad(log_p, list(model.parameters())), strict=True):
            total += g**2 / len(x)
    return squares


@pytest.mark.parametrize("samples", [7, 230])
def test_the_fisher_information_is_that_of_a_loop_over_samples(samples: int) -> None:
    model, x, y = problem(samples)
    for found, expected in zip(fisher(model, x, y).values(), looped_fisher(model, x, y), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_step_follows_the_gradient_of_loss_and_penalty_by_autograd() -> None:
    """After two tasks: the importances add up, the anchor is where the second ended."""
    model, x, y = problem()
    learner = ElasticWeights(Backprop(model, torch.optim.SGD(model.parameters(), 0.1)), strength=3.0)
    importance = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(2):
        learner.step(x, y)
        importance = [old + new for old, new in zip(importance, looped_fisher(model, x, y), strict=True)]
        learner.end_task((x, y))
    anchor = [p.detach().clone() for p in model.parameters()]
    learner.step(x, y)
    before = [p.detach().clone() for p in model.parameters()]
    parts = zip(importance, model.parameters(), anchor, strict=True)
    penalty = 3.0 / 2 * sum((F * (p - a) ** 2).sum() for F, p, a in parts)
    expected = torch.autograd.grad(nn.functional.cross_entropy(model(x), y) + penalty, list(model.parameters()))
    learner.step(x, y)
    for p, old, g in zip(model.parameters(), before, expected, strict=True):
        torch.testing.assert_close(p.detach(), old - 0.1 * g)


def test_the_loss_reported_is_without_the_penalty() -> None:
    model, x, y = problem()
    learner = ewc(model, strength=1e6)
    learner.step(x, y)
    learner.end_task((x, y))
    learner.step(x, y)
    expected = nn.functional.cross_entropy(model(x), y)
    torch.testing.assert_close(learner.step(x, y).loss, expected.detach())


def test_the_fisher_information_is_taken_from_the_first_samples_of_the_task() -> None:
    model, x, y = problem()
    learner = ewc(model, samples=4)
    learner.end_task((x, y))
    for found, expected in zip(learner.importance.values(), looped_fisher(model, x[:4], y[:4]), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_frozen_layer_has_no_importance() -> None:
    model, x, y = problem()
    model[0].requires_grad_(False)
    learner = ewc(model)
    learner.end_task((x, y))
    learner.step(x, y)
    assert list(learner.state_dict()["importance"]) == list(learner.state_dict()["anchor"]) == ["2.weight", "2.bias"]


def test_the_stronger_the_penalty_the_nearer_weights_stay_to_the_anchor() -> None:
    def moved(strength: float) -> float:
        model, x, y = problem()
        learner = ewc(model, strength, lr=0.01)
        for _ in range(30):
            learner.step(x, y)
        learner.end_task((x, y))
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        importance = torch.cat([F.flatten() for F in learner.importance.values()])
        for _ in range(30):
            learner.step(x, (y + 1) % 3)
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        return float((importance * (after - before) ** 2).sum())

    assert moved(0.0) > 2 * moved(10.0) > 4 * moved(1000.0)


def test_options_out_of_range_are_refused() -> None:
    model, _, _ = problem()
    with pytest.raises(ValueError, match="strength of ElasticWeights must be a finite number of at least 0, given -1"):
        ewc(model, strength=-1.0)
    with pytest.raises(ValueError, match="samples of ElasticWeights must be a whole number of at least 1, given 0"):
        ewc(model, samples=0)
    with pytest.raises(ValueError, match="lr of ewc must be a finite number of at least 0, given nan"):
        ewc(model, lr=float("nan"))
