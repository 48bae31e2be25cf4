"""Precision is torch's own setting and autocast: which products are rounded, and that nothing else is."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from calculus_cases import AFFINE, names
from torch import Tensor, nn

import altmin
from altmin import methods
from altmin.calculus import map_of
from altmin.common.errors import Diverged
from altmin.common.precision import current, rounding, using
from altmin.layers import Recurrent

BF16 = torch.autocast("cpu", torch.bfloat16)
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("make,shape", AFFINE, ids=names(AFFINE))
def test_every_product_of_a_map_has_rounded_operands_and_a_result_like_its_operand(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """Against the same in float32, on operands that bfloat16 has: then only results are rounded, to 8 digits. With
    other operands the distance is that of their rounding."""
    m, exact = map_of(make()), {}
    for whole in (True, False):
        p, x, u = [torch.randn(q.shape) for q in m.module.parameters()], torch.randn(shape), torch.randn(shape)
        v = torch.randn(m.forward(p, x)[0].shape)
        if whole:
            p, x, u, v = [t.bfloat16().float() for t in p], *(t.bfloat16().float() for t in (x, u, v))

        def results(p: Any = p, x: Tensor = x, u: Tensor = u, v: Tensor = v) -> list[Tensor]:
            y, saved = m.forward(p, x)
            return [y, m.vjp(p, saved, v), m.jvp(p, saved, u), m.grads(p, saved, v)[0]]

        plain = results()
        with BF16:
            rounded = results()
        assert {t.dtype for t in rounded} == {torch.float32}
        exact[whole] = [float((a - b).norm() / b.norm()) for a, b in zip(rounded, plain, strict=True)]
    assert max(exact[True]) < 2**-8
    assert min(exact[False]) > 2**-10, "the operands were not rounded"


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 4)), (5, 6)),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 4)),
        (5, 1, 8, 8),
    ),
    "autograd": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Softmax(1), nn.Linear(8, 4)), (5, 6)),
    "time": (lambda: nn.Sequential(Recurrent(2, 4), altmin.layers.Last(), nn.Linear(4, 4)), (5, 6, 2)),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.CoActivationMemory])
def test_steps_inside_autocast_keep_float32_and_learn(net: str, rule: Any) -> None:
    make, shape = NETS[net]
    am = altmin.AltMin(make(), weights=rule(lr=0.02))
    x, y = torch.randn(shape), torch.randint(4, shape[:1])
    with BF16:
        losses = [float(am.step(x, y).loss) for _ in range(30)]
    state = torch.utils._pytree.tree_leaves(am.updates.states)
    assert {t.dtype for t in (*am.model.parameters(), *state)} == {torch.float32}
    assert losses[-1] < 0.7 * losses[0]


@pytest.fixture
def own_flags() -> Iterator[None]:
    """Whatever a test sets, the next one finds torch's own choice."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("before", [(False, True), (True, False), "high", "medium"])
@pytest.mark.parametrize("name,inside", [("float32", False), ("tf32", True), ("bf16", False)])
def test_a_precision_sets_the_flags_and_gives_them_back_even_after_an_error(
    name: str, inside: bool, before: Any, own_flags: None
) -> None:
    if isinstance(before, str):
        torch.set_float32_matmul_precision(before)
    else:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before

    def flags() -> tuple[Any, ...]:
        matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        return matmul, cudnn, torch.get_float32_matmul_precision()

    as_found, seen = flags(), []

    def fail() -> None:
        with using(name):
            seen.extend([torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32])
            raise Diverged("a step")

    with pytest.raises(Diverged):
        fail()
    assert seen == [inside, inside]
    assert flags() == as_found


def test_backprop_is_rounded_by_autocast_as_people_write_it() -> None:
    """Forward pass and loss under torch.autocast, the backward pass outside, as PyTorch's own documents do."""
    make, shape = NETS["relu"]
    x, y = torch.randn(shape), torch.randint(4, shape[:1])
    torch.manual_seed(1)
    model, method = make(), None
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(1)
    method = methods.create("adam", make(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        with BF16:
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with rounding("bf16", CPU):
            found = method.step(x, y).loss
    assert torch.equal(found, loss.detach())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), method.model.parameters(), strict=True))


def test_the_precision_in_use_has_a_name_on_every_device(own_flags: None) -> None:
    for name in ("float32", "tf32", "bf16"):
        with using(name):
            assert current(CUDA, name) == name
            assert current(CPU, name) == ("bf16" if name == "bf16" else "float32")
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
    assert current(CUDA) == "tf32 of convolutions alone"


@pytest.mark.cuda
def test_tf32_changes_products_on_a_gpu_and_float32_does_not() -> None:
    m = map_of(nn.Linear(256, 256).cuda())
    p, x = list(m.module.parameters()), torch.randn(256, 256, device="cuda")
    exact = x.double() @ p[0].detach().double().mT
    errors = {}
    for name in ("float32", "tf32"):
        with using(name), torch.no_grad():
            errors[name] = float((m.jvp(p, x, x).double() - exact).norm() / exact.norm())
    assert errors["float32"] < 1e-5
    assert 1e-4 < errors["tf32"] < 2e-3
