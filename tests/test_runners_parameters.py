"""Flat groups: which parameters lie together, and that rows, views and optimizers' states belong to each other."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin.core.weights.adam_sgd import coefficients
from altmin.runners.parameters import FlatGroup, flat_groups


def net(seed: int) -> list[nn.Parameter]:
    torch.manual_seed(seed)
    return list(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4)).double().parameters())


def grouped(
    optimizer: Any, options: list[Any], l1s: list[float], fitted: dict[int, int] | None = None
) -> tuple[list[list[nn.Parameter]], list[Any], list[FlatGroup]]:
    """Two models with their optimizers, and their groups."""
    models = [net(seed) for seed in range(2)]
    optimizers = [optimizer(own, **given) for own, given in zip(models, options, strict=True)]
    return models, optimizers, flat_groups(models, optimizers, l1s, fitted or {})


def rates(group: FlatGroup, steps: Tensor) -> dict[str, Tensor]:
    return coefficients(group.options, steps, torch.float64)


def test_what_is_updated_alike_lies_together_in_the_order_of_the_model() -> None:
    before = [[p.detach().clone() for p in net(seed)] for seed in range(2)]
    models, _, groups = grouped(torch.optim.Adam, [{"lr": 0.1}, {"lr": 0.2}], [0.0, 0.0])
    (group,) = groups
    assert (group.kind, group.places) == ("adam", [0, 1, 2, 3])
    assert {name: values.tolist() for name, values in group.options.items()} == {
        "lr": [0.1, 0.2],
        "eps": [1e-8] * 2,
        "beta1": [0.9] * 2,
        "beta2": [0.999] * 2,
    }, "those that are zero for all are left out"
    for i in range(2):
        assert torch.equal(group.rows["weights"][i], torch.cat([p.flatten() for p in before[i]]))
        torch.testing.assert_close([*models[i]], [*before[i]], rtol=0, atol=0)
    with torch.no_grad():
        models[1][2].fill_(7.0)
    assert (group.rows["weights"][1, 8:16] == 7.0).all(), "a parameter is a view into its row"
    assert (group.rows["weights"] == 7.0).sum() == 8


def test_biases_have_no_l1_frozen_and_fitted_parameters_are_apart() -> None:
    models = [net(seed) for seed in range(2)]
    for own in models:
        own[3].requires_grad_(False)
    optimizers = [torch.optim.SGD(own[1:], lr=0.1) for own in models]
    groups = flat_groups(models, optimizers, [0.0, 0.5], {0: 0})
    kinds = [(group.kind, group.places) for group in groups]
    assert kinds == [("fitted", [0]), ("sgd", [1]), ("sgd", [2]), ("frozen", [3])]
    assert [group.optimized for group in groups] == [False, True, True, False]
    bias, matrix = groups[1:3]
    assert "l1" not in bias.options
    assert matrix.options["l1"].tolist() == [0.0, 0.5]
    assert set(bias.rows) == {"weights"}, "without momentum there is no velocity"


@pytest.mark.parametrize(
    "kind, options",
    [
        (torch.optim.Adam, [{"lr": 0.1, "weight_decay": 0.3}, {"lr": 0.2, "eps": 0.1}]),
        (torch.optim.AdamW, [{"lr": 0.1, "betas": (0.5, 0.6)}, {"lr": 0.2}]),
        (torch.optim.SGD, [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.2}]),
        (torch.optim.SGD, [{"lr": 0.1}, {"lr": 0.2, "weight_decay": 0.3}]),
    ],
)
def test_rows_step_as_torchs_optimizers_and_states_go_to_and_fro(kind: Any, options: list[Any]) -> None:
    """Two steps of the optimizers, two of the rows, and two of the optimizers again are six of the optimizers."""
    models, optimizers, (group,) = grouped(kind, options, [0.0, 0.0])
    others = [net(seed) for seed in range(2)]
    expected = [kind(own, **given) for own, given in zip(others, options, strict=True)]
    generator = torch.Generator().manual_seed(1)
    draws = [[torch.randn(2, *p.shape, generator=generator, dtype=p.dtype) for p in models[0]] for _ in range(6)]
    for made, made_of in ((expected, others), (optimizers, models)):
        for grads in draws if made is expected else draws[:2]:
            apply(made, made_of, grads)
    counts = torch.tensor([group.read(i, models[i], optimizers[i]) for i in range(2)], dtype=torch.float64)
    for grads in draws[2:4]:
        counts += 1
        for name, new in group.stepped(group.rows, grads, rates(group, counts)).items():
            group.rows[name].copy_(new)
    for i in range(2):
        group.write(i, models[i], optimizers[i], counts[i].item())
    for grads in draws[4:]:
        apply(optimizers, models, grads)
    for own, other in zip(models, others, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-11, atol=1e-13)


def apply(optimizers: list[Any], models: list[list[nn.Parameter]], grads: list[Tensor]) -> None:
    for i, (optimizer, own) in enumerate(zip(optimizers, models, strict=True)):
        for p, grad in zip(own, grads, strict=True):
            p.grad = grad[i].clone()
        optimizer.step()


def test_a_row_by_itself_steps_as_it_does_among_others() -> None:
    _, _, (group,) = grouped(torch.optim.SGD, [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.2, "momentum": 0.5}], [0.0, 0.0])
    grads = [torch.ones(2, *shape, dtype=torch.float64) for shape in group.shapes]
    group.rows["momentum_buffer"].fill_(2.0)
    steps = torch.ones(2, dtype=torch.float64)
    all_rows = group.stepped(group.rows, grads, rates(group, steps))
    for i, (lr, momentum) in enumerate(((0.1, 0.9), (0.2, 0.5))):
        row = {name: rows[i] for name, rows in group.rows.items()}
        one = group.stepped(row, [g[i] for g in grads], {name: c[i] for name, c in rates(group, steps).items()})
        assert torch.equal(one["weights"], all_rows["weights"][i])
        torch.testing.assert_close(one["weights"], row["weights"] - lr * (momentum * 2 + 1))


def test_the_proximal_step_follows_with_each_members_rate() -> None:
    _, _, groups = grouped(torch.optim.SGD, [{"lr": 0.1}, {"lr": 0.2}], [0.0, 2.0])
    matrices, biases = (next(g for g in groups if place in g.places) for place in (0, 1))
    for group, thresholds in ((matrices, (0.0, 0.4)), (biases, (0.0, 0.0))):
        zero = [torch.zeros(2, *shape, dtype=torch.float64) for shape in group.shapes]
        found = group.stepped(group.rows, zero, rates(group, torch.ones(2, dtype=torch.float64)))["weights"]
        for i, threshold in enumerate(thresholds):
            torch.testing.assert_close(found[i], nn.functional.softshrink(group.rows["weights"][i], threshold))
