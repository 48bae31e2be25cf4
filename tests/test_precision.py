"""Products in bfloat16 and tf32: which operands are rounded, that nothing else is, and that it can be undone.

Operands here are 1 or 2 in size, times a factor that rounding to bfloat16 takes away: their rounded products are small
whole numbers, exact in every type, while products of what is not rounded are off by half a percent.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import update_codes
from test_maps import CASES, Bilinear, names
from torch import Tensor, nn

import altmin
from altmin import methods
from altmin.calculus import Affine, Readout, Recurrent, Steps, map_of, products
from altmin.chain import Theta
from altmin.codes.gradient import encode
from altmin.codes.linesearch import LossAbove
from altmin.execution.precision import using
from altmin.objective import adapt

ABOVE = 1 + 0.45 / 128  # rounds to 1: bfloat16 has 8 significant bits
AFFINE = [case for case in CASES if isinstance(map_of(case[0]()), Affine)]


def operand(*shape: int, sizes: tuple[int, ...] = (1, 2)) -> Tensor:
    return ABOVE * torch.tensor(sizes)[torch.randint(len(sizes), shape)] * torch.randint(2, shape).mul(2).sub(1)


def rounded(a: Tensor) -> Tensor:
    return a.bfloat16().double()


def fits_bf16(a: Tensor) -> Tensor:
    """Which of the entries that are not zero are whole in bfloat16."""
    a = a[a != 0]
    return a == a.bfloat16().to(a.dtype)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert not products._rounds


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
    with using("bf16"):
        y, saved = m.forward(p, x)
        pull, push, grads = m.pull(p, saved, v), m.push(p, saved, u), m.grads(p, saved, v)
    on_x, on_W = torch.autograd.grad(ye, [xe, exact.weight], rounded(v))
    assert torch.equal(y, ye.detach().float())
    assert torch.equal(pull, on_x.float())
    assert torch.equal(push, (exact(rounded(u)) - exact(torch.zeros_like(xe))).detach().float())
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
    with using("bf16"):
        found = products.linear(a, W)
    expected = rounded(a) @ rounded(W).mT
    size = rounded(a).abs() @ rounded(W).abs().mT
    assert ((found - expected).abs() <= 2**-8 * expected.abs() + 1e-6 * size).all()


def test_products_in_time_have_rounded_operands() -> None:
    m = map_of(Recurrent(3, 4))
    U, W, b = operand(4, 3), operand(4, 4), operand(4)
    x, h, v = operand(5, 2, 3), operand(5, 2, 4), operand(2, 5, 4, sizes=(1,))
    saved = Steps(x, h, None)
    with using("bf16"):
        c = m.replay((U, W, b), saved, x)[0]
        dU, dW, db = m.grads((U, W, b), saved, v)
        pull, push = m.pull((U, W, b), saved, v), m.push((U, W, b), saved, x.transpose(0, 1))
    xe, he, ve = rounded(x).transpose(0, 1), rounded(h).transpose(0, 1), rounded(v)
    ce = xe @ rounded(U).mT + b.double()
    ce[:, 1:] += he[:, :-1] @ rounded(W).mT
    torch.testing.assert_close(c.double(), ce, rtol=0, atol=1e-5)
    assert torch.equal(dU, torch.einsum("nti,ntj->ij", ve, xe).float())
    assert torch.equal(dW, torch.einsum("nti,ntj->ij", ve[:, 1:], he[:, :-1]).float())
    torch.testing.assert_close(db.double(), v.double().sum((0, 1)), rtol=1e-6, atol=1e-6)
    assert torch.equal(pull, (ve @ rounded(U)).float())
    assert torch.equal(push, (xe @ rounded(U).mT).float())


def mlp(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, 7), activation(), nn.Linear(7, 4))


def elman() -> nn.Module:
    return nn.Sequential(Recurrent(2, 4), Readout(4, 3), nn.Flatten(), nn.Linear(18, 4))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Any]] = {
    "relu": (lambda: mlp(nn.ReLU), (5, 6), "gradient"),
    "tanh": (lambda: mlp(nn.Tanh), (5, 6), "gradient"),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16, 4),
        ),
        (5, 1, 8, 8),
        "gradient",
    ),
    "parallel": (elman, (5, 6, 2), "parallel"),
    "sequential": (elman, (5, 6, 2), "sequential"),
}
EVERY_NET = pytest.mark.parametrize("net", NETS)


def problem(net: str) -> tuple[nn.Module, Tensor, Tensor, Any]:
    make, shape, codes = NETS[net]
    model = make()
    return (
        model,
        torch.randn(shape),
        torch.randint(4, shape[:1]),
        altmin.codes.choose.choose(codes, altmin.split(model)),
    )


@EVERY_NET
def test_codes_meet_weights_only_in_rounded_products(net: str) -> None:
    """After the same forward pass, weights that round to the same numbers leave the same residuals, bit by bit; not so
    in float32."""
    model, x, y, codes = problem(net)
    chain = altmin.split(model)
    theta = chain.parameters()
    short = [[p.bfloat16().float() if p.ndim > 1 else p for p in block] for block in theta]

    @torch.no_grad()
    def residuals(theta_of_codes: Theta) -> list[Tensor]:
        trace = encode(chain, theta, x)
        top = LossAbove(adapt(nn.CrossEntropyLoss()), trace.values[-1], y, 0.1)
        return [p.plain().at.force.clone() for p in codes(chain, theta_of_codes, trace, top, 0.1)]

    with using("bf16"):
        assert all(torch.equal(a, b) for a, b in zip(residuals(theta), residuals(short), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(residuals(theta), residuals(short), strict=True))


@EVERY_NET
def test_with_rounded_products_no_step_of_the_codes_raises_what_it_measures(net: str) -> None:
    model, x, y, codes = problem(net)
    am = altmin.AltMin(model, codes=codes, weights=altmin.LocalAdam(0.02), penalty=0.1)
    with using("bf16"):
        seen = [am.step(x, y) for _ in range(20)]
    assert all(at.objective <= float(at.loss) * (1 + 1e-5) for at in seen)
    assert float(seen[-1].loss) < 0.9 * float(seen[0].loss)


@EVERY_NET
def test_what_is_kept_is_float32(net: str) -> None:
    """Codes, residuals, gradients, weights and Adam's state have more digits than bfloat16, and small steps are not
    lost on the weights."""
    model, x, y, codes = problem(net)
    weights = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    before = [p.detach().clone() for p in weights]
    with using("bf16"):
        _, moved, problems = update_codes(model, codes, x, y, mu=0.1)
        am = altmin.AltMin(model, codes=codes, weights=altmin.LocalAdam(1e-6, eps=1e-12))
        am.step(x, y)
    state = [t for s in am.optimizer.state.values() for t in s.values() if t.ndim > 1]
    kept = [*moved[:-1], *(p.plain().at.force for p in problems), *weights, *state]
    assert {t.dtype for t in kept} == {torch.float32}
    assert all(fits_bf16(t).float().mean() < 0.5 for t in kept)
    for p, old in zip(weights, before, strict=True):
        change = (p.detach() - old).abs()
        assert (change > 0).float().mean() > 0.5, "a step of 1e-6 is far below the digits of bfloat16"
        assert change.max() < 2e-6


def test_the_forward_pass_of_a_recurrent_layer_is_not_rounded() -> None:
    model, x = elman(), torch.randn(5, 6, 2)
    with using("bf16"):
        h = altmin.split(model).blocks[0].forward(list(model[0].parameters())[:3], x)[0]
    assert torch.equal(h, model[0](x))


def test_modules_without_a_closed_form_are_not_rounded() -> None:
    m = map_of(Bilinear())
    p, x, v = list(m.module.parameters()), torch.randn(3, 5), torch.randn(3, 4)

    def outcome() -> list[Tensor]:
        y, saved = m.forward(p, x)
        return [y, m.pull(p, saved, v), m.push(p, saved, x), m.move(p, saved, 1e-3 * x)[0], *m.grads(p, saved, v)]

    plain = outcome()
    with using("bf16"):
        assert all(torch.equal(a, b) for a, b in zip(outcome(), plain, strict=True))


@pytest.mark.parametrize("name", [None, "float32", "tf32"])
def test_products_that_are_not_rounded_are_those_of_torch_bit_by_bit(name: str | None) -> None:
    x, v, W, b = torch.randn(7, 30), torch.randn(7, 20), torch.randn(20, 30), torch.randn(20)
    image, out, K, c = torch.randn(2, 3, 9, 9), torch.randn(2, 4, 7, 7), torch.randn(4, 3, 3, 3), torch.randn(4)
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

    def outcome() -> list[Tensor]:
        return [
            products.linear(x, W, b),
            products.linear(x, W),
            products.matmul(v, W),
            products.matmul(v.mT, x),
            products.convolution(image, K, c, geometry),
            products.convolution_backward(out, image, K, geometry, weight=False),
            products.convolution_backward(out, image, K, geometry, weight=True),
        ]

    image.requires_grad_()
    K.requires_grad_()
    y = torch.conv2d(image, K, c)
    expected = [
        torch.nn.functional.linear(x, W, b),
        torch.nn.functional.linear(x, W),
        v @ W,
        v.mT @ x,
        y,
        *torch.autograd.grad(y, [image, K], out),
    ]
    if name is None:
        found = outcome()
    else:
        with using(name):
            found = outcome()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.fixture
def own_flags() -> Iterator[None]:
    """Whatever a test sets, the next one finds torch's own choice."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def flags() -> tuple[Any, ...]:
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return matmul, cudnn, torch.get_float32_matmul_precision(), products._rounds


@pytest.mark.parametrize("before", [(False, True), (True, False), "high", "medium"])
@pytest.mark.parametrize("name,inside", [("float32", (False, False)), ("tf32", (True, True)), ("bf16", (False, False))])
def test_a_precision_sets_the_flags_and_gives_them_back_even_after_an_error(
    name: str, inside: tuple[bool, bool], before: tuple[bool, bool] | str, own_flags: None
) -> None:
    if isinstance(before, str):
        torch.set_float32_matmul_precision(before)
    else:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    as_found, seen = flags(), []

    def fail() -> None:
        with using(name):
            seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, products._rounds))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [(*inside, name == "bf16")]
    assert flags() == as_found


def test_one_precision_within_another_holds_for_its_part_only() -> None:
    a, b = torch.tensor([[ABOVE]]), torch.tensor([[1.0]])

    def now() -> float:
        return products.matmul(a, b).item()

    exact = a.item()
    with using("bf16"):
        seen = [now()]
        with using("float32"):
            seen.append(now())
        seen.append(now())
    assert [*seen, now()] == [1, exact, 1, exact]


def test_rounded_products_of_many_members_are_those_of_each() -> None:
    x, W, b = operand(5, 6), operand(3, 4, 6, sizes=(1,)), operand(3, 4)
    image, K = operand(2, 2, 5, 5), operand(3, 3, 2, 2, 2, sizes=(1,))
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

    def both(W: Tensor, b: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
        return products.linear(x, W, b), products.convolution(image, K, None, geometry)

    with using("bf16"):
        together = torch.func.vmap(both)(W, b, K)
        for i in range(3):
            assert all(torch.equal(a[i], c) for a, c in zip(together, both(W[i], b[i], K[i]), strict=True))


def test_a_compiled_product_heeds_the_precision_of_its_call() -> None:
    compiled = torch.compile(products.linear, backend="eager", fullgraph=True)
    x, W, b = operand(3, 6), operand(4, 6), operand(4)
    for name in ("float32", "bf16", "float32"):
        with using(name):
            assert torch.equal(compiled(x, W, b), products.linear(x, W, b))


def backprop_by_hand(precision: str, x: Tensor, y: Tensor) -> list[Tensor]:
    """Forward pass and loss under torch.autocast, the backward pass outside, as PyTorch's own documents do."""
    torch.manual_seed(0)
    model = mlp(nn.ReLU)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return [loss.detach(), *model.parameters()]


@pytest.mark.parametrize("name", ["float32", "bf16"])
def test_backprop_is_rounded_by_autocast_as_people_write_it(name: str) -> None:
    x, y = torch.randn(5, 6), torch.randint(4, (5,))
    expected = backprop_by_hand(name, x, y)
    torch.manual_seed(0)
    method = methods.create("adam", mlp(nn.ReLU), lr=0.01)
    with using(name):
        losses = [method.step(x, y).loss for _ in range(3)]
    found = [losses[-1], *method.model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert {p.dtype for p in method.model.parameters()} == {torch.float32}


def test_the_two_precisions_of_backprop_differ() -> None:
    x, y = torch.randn(5, 6), torch.randint(4, (5,))
    pair = (backprop_by_hand(name, x, y) for name in ("float32", "bf16"))
    assert not any(torch.equal(a, b) for a, b in zip(*pair, strict=True))
