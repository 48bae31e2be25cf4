"""Adam's fused kernel with less around it: the steps of torch's own Adam."""

import pytest
import torch
from torch import nn

from altmin.core.weights.local import FusedAdam

F64 = torch.float64


def parameters() -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=g, dtype=F64)) for shape in ((4, 3), (4,), (2, 4))]


def gradients(step: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(step + 1)
    return [torch.randn(*shape, generator=g, dtype=F64) for shape in ((4, 3), (4,), (2, 4))]


@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_are_those_of_torchs_adam_also_for_a_parameter_that_joins_later(decoupled: bool) -> None:
    options = {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}
    ours, theirs = parameters(), parameters()
    fused = FusedAdam(ours, **options, decoupled_weight_decay=decoupled, fused=True)
    plain = (torch.optim.AdamW if decoupled else torch.optim.Adam)(theirs, **options)
    for step in range(4):
        for p, q, grad in zip(ours, theirs, gradients(step), strict=True):
            p.grad, q.grad = (None, None) if step < 2 and p is ours[1] else (grad.clone(), grad.clone())
        fused.step()
        plain.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)
        assert float(fused.state[p]["step"]) == float(plain.state[q]["step"])


def test_while_found_inf_is_one_nothing_changes() -> None:
    held = parameters()
    fused = FusedAdam(held, lr=0.05, fused=True)
    for step, bad in enumerate((0.0, 1.0, 0.0)):
        before = [p.detach().clone() for p in held]
        for p, grad in zip(held, gradients(step), strict=True):
            p.grad = grad
        fused.found_inf = torch.tensor(bad)
        fused.step()
        same = [torch.equal(p, q) for p, q in zip(held, before, strict=True)]
        assert same == [bool(bad)] * 3
    assert float(fused.state[held[0]]["step"]) == 2
