"""Products in bfloat16: which operands are rounded, and that nothing else is.

Operands here are 1 or 2 in size, times a factor that rounding to bfloat16 takes away: their rounded products are small
whole numbers, exact in every type, while products of what is not rounded are off by half a percent.
"""

from collections.abc import Callable

import pytest
import torch
from calculus_cases import AFFINE, Bilinear, names
from torch import Tensor, nn

from altmin.calculus import Steps, map_of, products
from altmin.layers import Recurrent

ABOVE = 1 + 0.45 / 128  # rounds to 1: bfloat16 has 8 significant bits


def operand(*shape: int, sizes: tuple[int, ...] = (1, 2)) -> Tensor:
    return ABOVE * torch.tensor(sizes)[torch.randint(len(sizes), shape)] * torch.randint(2, shape).mul(2).sub(1)


def rounded(a: Tensor) -> Tensor:
    return a.bfloat16().double()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("make,shape", AFFINE, ids=names(AFFINE))
def test_every_product_of_a_map_has_rounded_operands(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """Held against autograd in float64 on rounded operands, exactly. The bias is added, and its gradient summed, as it
    is."""
    module = make()
    m = map_of(module)
    p = [operand(*q.shape, sizes=(1,)) for q in module.parameters()]
    x, u = operand(*shape), operand(*shape)
    exact = make().double()
    for q, value in zip(exact.parameters(), p, strict=True):
        q.data = rounded(value)
    if bias := len(p) > 1:
        exact.bias.data = p[1].double()
    xe = rounded(x).requires_grad_()
    ye = exact(xe)
    v = operand(*ye.shape, sizes=(1,))
    shorter = m.operands(p)
    assert [q.dtype for q in shorter] == [torch.bfloat16, torch.float32][: len(p)], "a bias is no factor"
    y, saved = m.forward(shorter, x)
    on_input, change, grads = m.vjp(shorter, saved, v), m.jvp(shorter, saved, u), m.grads(shorter, saved, v)
    on_x, on_W = torch.autograd.grad(ye, [xe, exact.weight], rounded(v))
    assert {t.dtype for t in (y, on_input, change, *grads)} == {torch.float32}
    assert torch.equal(y, ye.detach().float())
    assert torch.equal(on_input, on_x.float())
    assert torch.equal(change, (exact(rounded(u)) - exact(torch.zeros_like(xe))).detach().float())
    assert torch.equal(grads[0], on_W.float())
    if bias:
        axis = 1 if isinstance(module, nn.modules.conv._ConvNd) else v.ndim - 1
        total = v.double().sum([i for i in range(v.ndim) if i != axis])
        torch.testing.assert_close(grads[1].double(), total, rtol=1e-6, atol=1e-6)
    plain = m.forward(p, x)[0]
    assert not torch.equal(plain, y), "the operands of this test do not tell rounded from not rounded"


@pytest.mark.parametrize("shape", [(7, 300), (2, 3, 300)])
def test_a_rounded_product_of_any_operands_is_as_exact_as_its_type(shape: tuple[int, ...]) -> None:
    a, W = torch.randn(shape), torch.randn(5, 300)
    found = products.linear(a, W.bfloat16())
    expected = rounded(a) @ rounded(W).mT
    size = rounded(a).abs() @ rounded(W).abs().mT
    assert ((found - expected).abs() <= 2**-8 * expected.abs() + 1e-6 * size).all()


def test_products_in_time_have_rounded_operands() -> None:
    m = map_of(Recurrent(3, 4))
    U, W, b = operand(4, 3), operand(4, 4), operand(4)
    x, h, v = operand(5, 2, 3), operand(5, 2, 4), operand(2, 5, 4, sizes=(1,))
    saved = Steps(x, h, None)
    p = m.operands((U, W, b))
    c = m.replay(p, saved, x)[0]
    dU, dW, db = m.grads(p, saved, v)
    on_x, change = m.vjp(p, saved, v), m.jvp(p, saved, x.transpose(0, 1))
    xe, he, ve = rounded(x).transpose(0, 1), rounded(h).transpose(0, 1), rounded(v)
    ce = xe @ rounded(U).mT + b.double()
    ce[:, 1:] += he[:, :-1] @ rounded(W).mT
    torch.testing.assert_close(c.double(), ce, rtol=0, atol=1e-5)
    assert torch.equal(dU, torch.einsum("nti,ntj->ij", ve, xe).float())
    assert torch.equal(dW, torch.einsum("nti,ntj->ij", ve[:, 1:], he[:, :-1]).float())
    torch.testing.assert_close(db.double(), v.double().sum((0, 1)), rtol=1e-6, atol=1e-6)
    assert torch.equal(on_x, (ve @ rounded(U)).float())
    assert torch.equal(change, (xe @ rounded(U).mT).float())


@pytest.mark.parametrize("make", [Bilinear, nn.Tanh, lambda: nn.LayerNorm(5), lambda: nn.BatchNorm1d(5)])
def test_modules_without_products_in_closed_form_are_not_rounded(make: Callable[[], nn.Module]) -> None:
    m = map_of(make())
    p = list(m.module.parameters())
    assert all(a is b for a, b in zip(m.operands(p), p, strict=True))


def test_products_that_are_not_rounded_are_those_of_torch_bit_by_bit() -> None:
    x, v, W, b = torch.randn(7, 30), torch.randn(7, 20), torch.randn(20, 30), torch.randn(20)
    image, out, K, c = torch.randn(2, 3, 9, 9), torch.randn(2, 4, 7, 7), torch.randn(4, 3, 3, 3), torch.randn(4)
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    image.requires_grad_()
    K.requires_grad_()
    y = torch.conv2d(image, K, c)
    pairs = [
        (products.linear(x, W, b), torch.nn.functional.linear(x, W, b)),
        (products.linear(x, W), torch.nn.functional.linear(x, W)),
        (products.matmul(v, W), v @ W),
        (products.outer(v, x, W), v.mT @ x),
        (products.convolution(image, K, c, geometry), y),
    ]
    for weight, wanted in zip((False, True), torch.autograd.grad(y, [image, K], out), strict=True):
        pairs.append((products.convolution_backward(out, image, K, geometry, weight), wanted))
    assert all(torch.equal(found, wanted) for found, wanted in pairs)


def test_rounded_products_of_many_members_are_those_of_each() -> None:
    x, W, b = operand(5, 6), operand(3, 4, 6, sizes=(1,)).bfloat16(), operand(3, 4)
    image, K = operand(2, 2, 5, 5), operand(3, 3, 2, 2, 2, sizes=(1,)).bfloat16()
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

    def both(W: Tensor, b: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
        return products.linear(x, W, b), products.convolution(image, K, None, geometry)

    together = torch.func.vmap(both)(W, b, K)
    for i in range(3):
        assert all(torch.equal(a[i], c) for a, c in zip(together, both(W[i], b[i], K[i]), strict=True))


def test_a_compiled_product_heeds_the_precision_of_its_weights() -> None:
    compiled = torch.compile(products.linear, backend="eager", fullgraph=True)
    x, W, b = operand(3, 6), operand(4, 6), operand(4)
    for given in (W, W.bfloat16(), W):
        assert torch.equal(compiled(x, given, b), products.linear(x, given, b))
    assert not torch.equal(compiled(x, W.bfloat16(), b), compiled(x, W, b))
