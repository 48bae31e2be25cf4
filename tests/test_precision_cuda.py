"""Precision on a GPU: tf32 is really used, rounded products are those of a CPU, with all digits of their sums."""

from collections.abc import Callable

import pytest
import torch
from calculus_cases import AFFINE, names
from test_calculus_products import operand, seeded  # noqa: F401  (a fixture)
from torch import Tensor, nn

from altmin.calculus import map_of, products
from altmin.runners.precision import using

pytestmark = pytest.mark.cuda


def test_tf32_changes_products_on_a_gpu_and_float32_does_not() -> None:
    a, b = torch.randn(256, 256, device="cuda"), torch.randn(256, 256, device="cuda")
    image, K = torch.randn(8, 64, 32, 32, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    exact = a.double() @ b.double(), torch.conv2d(image.double(), K.double())
    errors = {}
    for name in ("float32", "tf32"):
        with using(name):
            found = (
                products.matmul(a, b),
                products.convolution(image, K, None, ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
            )
        errors[name] = [((f - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True)]
    assert max(errors["float32"]) < 1e-5
    assert 1e-4 < min(errors["tf32"]) <= max(errors["tf32"]) < 2e-3


@pytest.mark.parametrize("make,shape", AFFINE, ids=names(AFFINE))
def test_rounded_products_on_a_gpu_are_those_of_a_cpu(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    m = map_of(make())
    p, x = [operand(*q.shape, sizes=(1,)) for q in m.module.parameters()], operand(*shape)
    v = operand(*m.forward(p, x)[0].shape, sizes=(1,))

    def outcome(device: str, name: str) -> list[Tensor]:
        q, a, b = [t.to(device) for t in p], x.to(device), v.to(device)
        q = list(m.operands(q)) if name == "bf16" else q
        with using("float32"):
            y, saved = m.forward(q, a)
            return [t.cpu() for t in (y, m.jvp(q, saved, a), m.vjp(q, saved, b), m.grads(q, saved, b)[0])]

    on_gpu, on_cpu, plain = outcome("cuda", "bf16"), outcome("cpu", "bf16"), outcome("cpu", "float32")
    assert {t.dtype for t in on_gpu} == {torch.float32}
    for found, expected, exact in zip(on_gpu, on_cpu, plain, strict=True):
        off = (expected - exact).abs().max()  # what rounding does
        assert off > 0.005
        torch.testing.assert_close(found, expected, rtol=0, atol=off.item() / 4)


@pytest.mark.skipif(not products.SUMS_COME_OUT, reason="this torch rounds the sums too")
@pytest.mark.parametrize("shape", [(3, 257), (2, 3, 257)])
def test_the_sums_of_a_gpu_come_out_with_all_their_digits(shape: tuple[int, ...]) -> None:
    found = products.linear(torch.ones(shape, device="cuda"), torch.ones(4, 257, device="cuda").bfloat16())
    assert torch.equal(found, torch.full((*shape[:-1], 4), 257.0, device="cuda")), "bfloat16 has no 257"


def test_rounded_products_on_a_gpu_can_be_recorded_and_mapped() -> None:
    x, whole, b = (t.cuda() for t in (operand(5, 6), operand(3, 4, 6, sizes=(1,)), operand(3, 4)))
    W = whole.bfloat16()
    alone = [products.linear(x, W[i], b[i]) for i in range(3)]
    together = torch.func.vmap(lambda W, b: products.linear(x, W, b))(W, b)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = products.linear(x, W[0], b[0])
    assert all(torch.equal(a, c) for a, c in zip(together, alone, strict=True))
    expected = products.linear(x.neg_(), W[0], b[0])
    graph.replay()
    assert torch.equal(recorded, expected), "the graph keeps the precision it was recorded in"
    assert not torch.equal(expected, products.linear(x, whole[0], b[0]))
