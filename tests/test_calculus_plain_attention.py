"""Attention by operations with derivatives of every order: torch's numbers, in the thread that asks for it alone."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import altmin
from altmin.calculus.plain_attention import layer_by_layer, plain_attention

F64 = torch.float64


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


Q, K, V = numbers(2, 4, 3, 6), numbers(2, 4, 5, 6, seed=1), numbers(2, 4, 5, 6, seed=2)
KEEPS = torch.tensor([[True, False, True, True, False]] * 3)
OPTIONS: list[dict[str, Any]] = [
    *({}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": KEEPS}, {"attn_mask": numbers(3, 5, seed=3)}),
    {"enable_gqa": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "none")
def test_it_is_torchs_attention_and_has_two_derivatives(options: dict[str, Any]) -> None:
    k, v = (K[:, :2], V[:, :2]) if "enable_gqa" in options else (K, V)
    expected = F.scaled_dot_product_attention(Q, k, v, **options)
    with plain_attention():
        torch.testing.assert_close(F.scaled_dot_product_attention(Q, k, v, **options), expected)
        given = [t[:1, :, :, :2].clone().requires_grad_() for t in (Q, k, v)]
        assert torch.autograd.gradgradcheck(lambda *t: F.scaled_dot_product_attention(*t, **options), given)


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.MultiheadAttention])
def test_so_is_that_of_torchs_modules(kind: Any) -> None:
    torch.manual_seed(0)
    module = kind(4, 2, batch_first=True, dropout=0.0).to(F64)
    x = numbers(2, 3, 4).requires_grad_()
    call = module if kind is nn.TransformerEncoderLayer else lambda x: module(x, x, x, need_weights=False)[0]
    expected = call(x)
    with plain_attention():
        torch.testing.assert_close(call(x), expected)
        assert torch.autograd.gradgradcheck(call, x)


def test_the_kernel_for_a_whole_layer_which_has_no_derivatives_is_not_used_within() -> None:
    layer, x = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False), torch.randn(2, 3, 4)

    def used() -> bool:
        with torch.profiler.profile() as profile:
            layer(x)
        return "aten::_transformer_encoder_layer_fwd" in {each.name for each in profile.events()}

    with layer_by_layer():
        assert not used()
    assert used()


def settings() -> list[bool]:
    """Of the process, which other threads see."""
    cuda = torch.backends.cuda
    kernels = [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()]
    return [torch.backends.mha.get_fastpath_enabled(), torch.backends.cudnn.enabled, *kernels]


class Noting(nn.Module):
    """A transformer layer that notes torch's settings in each pass."""

    def __init__(self, dropout: float):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=True)
        self.seen: list[list[bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(settings())
        return self.layer(x) if x.shape[0] else x


@pytest.mark.parametrize("members", [1, 2])
def test_no_pass_of_a_step_changes_what_other_threads_see(members: int) -> None:
    before, seen = settings(), []
    models = []
    for _ in range(members):
        noting = Noting(0.3 if members == 1 else 0.0)
        noting.seen = seen
        models.append(nn.Sequential(nn.Linear(4, 4), noting, nn.Flatten(), nn.Linear(12, 3)))
    trainers = [altmin.AltMin(model, codes=altmin.GradientCodes(share=1.0)) for model in models]
    run: Any = trainers[0] if members == 1 else altmin.Ensemble(trainers)
    seen.clear()
    run.step(torch.randn(5, 3, 4), torch.randint(3, (5,)))
    assert len(seen) > 2
    assert all(each == before for each in seen)
