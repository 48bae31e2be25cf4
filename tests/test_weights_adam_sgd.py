"""The local rules, as functions of tensors and by torch's kernels, against torch's own optimizers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin.core.weights.adam_sgd import coefficients

F64 = torch.float64
STEPS = 6
SHAPES = ((4, 3), (4,), (2, 4))
RULES: dict[str, tuple[Any, Any]] = {
    "adam": (altmin.LocalAdam(0.1, (0.8, 0.95), 1e-3), lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.95), 1e-3)),
    "no momentum": (altmin.LocalAdam(0.1, (0.0, 0.95)), lambda p: torch.optim.Adam(p, 0.1, (0.0, 0.95))),
    "decay": (
        altmin.LocalAdam(0.1, eps=1e-3, weight_decay=0.3),
        lambda p: torch.optim.Adam(p, 0.1, eps=1e-3, weight_decay=0.3),
    ),
    "adamw": (
        altmin.LocalAdam(0.1, eps=1e-3, weight_decay=0.3, decoupled_weight_decay=True),
        lambda p: torch.optim.AdamW(p, 0.1, eps=1e-3, weight_decay=0.3),
    ),
    "sgd": (altmin.LocalSGD(0.1, momentum=0.0), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (
        altmin.LocalSGD(0.1, 0.9, weight_decay=0.3),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.3),
    ),
}
EVERY = pytest.mark.parametrize("name", RULES)


def tensors(seed: int, dtype: torch.dtype = F64) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=g, dtype=dtype) for shape in SHAPES]


def rates(rule: Any) -> dict[str, Any]:
    return {**rule.numbers(), "samples": 1, "kind": 0, "decayed": [True] * len(SHAPES)}


def by_torch(name: str, skipped: int | None = None) -> list[Tensor]:
    """torch's weights after some steps, of which one may have been left out."""
    p = [nn.Parameter(t) for t in tensors(0)]
    optimizer = RULES[name][1](p)
    for step in range(STEPS):
        for q, g in zip(p, tensors(step + 1), strict=True):
            q.grad = g
        if step != skipped:
            optimizer.step()
    return [q.detach() for q in p]


@EVERY
def test_as_functions_rules_go_where_torchs_optimizers_go(name: str) -> None:
    rule, p = RULES[name][0], tensors(0)
    state = rule.start(p)
    for step in range(STEPS):
        changes, state = rule.update(p, state, tensors(step + 1), rates(rule))
        p = [q + change for q, change in zip(p, changes, strict=True)]
    torch.testing.assert_close(p, by_torch(name), rtol=1e-12, atol=1e-14)


@EVERY
def test_kernels_in_place_go_where_torchs_optimizers_go_and_change_nothing_unless_ok(name: str) -> None:
    rule, p = RULES[name][0], [nn.Parameter(t) for t in tensors(0)]
    state = rule.start(p)
    for step in range(STEPS):
        with torch.no_grad():
            proposal = rule.propose({0: p}, {0: state}, {0: tensors(step + 1)}, {0: rates(rule)})
            assert bool(proposal.finite)
            proposal.apply(torch.tensor(step != 3))
    torch.testing.assert_close([q.detach() for q in p], by_torch(name, 3), rtol=1e-12, atol=1e-14)
    assert float(state["step"]) == STEPS - 1


@EVERY
def test_of_gradients_whose_squares_overflow_no_step_is_finite(name: str) -> None:
    rule, p = RULES[name][0], [nn.Parameter(t) for t in tensors(0)]
    grads = [1e200 * t for t in tensors(1)]
    proposal = rule.propose({0: p}, {0: rule.start(p)}, {0: grads}, {0: rates(rule)})
    assert not bool(proposal.finite)


@EVERY
def test_numbers_may_be_those_of_each_member(name: str) -> None:
    """Under vmap with numbers of their own, members take the steps of separate calls, in the weights' type."""
    rule, factors = RULES[name][0], torch.tensor([1.0, 0.5, 2.0], dtype=F64)
    p, g = tensors(0, torch.float32), tensors(1, torch.float32)
    state, numbers = rule.start(p), rule.numbers()
    constant = {"samples": 1, "kind": 0, "decayed": [True] * len(SHAPES), "beta1": None, **dict.fromkeys(numbers, 0.0)}
    moving = {
        k: v * factors if k in ("lr", "eps", "weight_decay") else v + 0 * factors for k, v in numbers.items() if v
    }

    def step(each: dict[str, Tensor]) -> Any:
        return rule.update(p, state, g, {**constant, **each})

    together = torch.func.vmap(step)(moving)
    for i in range(3):
        alone = rule.update(p, state, g, {**constant, **{k: v[i].item() for k, v in moving.items()}})
        for a, b in zip(*map(torch.utils._pytree.tree_leaves, (together, alone)), strict=True):
            assert a.dtype == torch.float32
            torch.testing.assert_close(a[i], b, rtol=1e-5, atol=1e-7)


def test_coefficients_of_counted_steps_have_all_digits() -> None:
    """1 - 0.999, computed in single precision, would have lost four digits."""
    numbers = {"lr": 0.003, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    for step in (1, 5):
        found = coefficients(numbers, torch.tensor(float(step), dtype=F64))
        assert float(found["rate"]) == pytest.approx(0.003 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step), rel=1e-12)
        assert float(found["eps"]) == pytest.approx(1e-8 * (1 - 0.999**step) ** 0.5, rel=1e-12)


def test_weight_decay_may_spare_biases_and_l1_shrinks_matrices_alone() -> None:
    rule = altmin.LocalSGD(0.1, 0.0, weight_decay=0.3, l1=0.5, decay_biases=False)
    for dim in (0, 1):
        p = tensors(0)
        given = {**rates(rule), "decayed": [True, False, True]}
        if dim:
            changes, _ = rule.update(p, rule.start(p), tensors(1), given)
            found = [q + c for q, c in zip(p, changes, strict=True)]
        else:
            held = [nn.Parameter(q.clone()) for q in p]
            with torch.no_grad():
                rule.propose({0: held}, {0: rule.start(held)}, {0: tensors(1)}, {0: given}).apply(None)
            found = [q.detach() for q in held]
        for q, g, new in zip(p, tensors(1), found, strict=True):
            decayed = q - 0.1 * (g + 0.3 * q) if q.ndim > 1 else q - 0.1 * g
            expected = decayed.sign() * (decayed.abs() - 0.05).clamp_min(0) if q.ndim > 1 else decayed
            torch.testing.assert_close(new, expected, rtol=1e-12, atol=1e-14)
