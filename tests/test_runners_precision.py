"""Precision as a whole step sees it: what is rounded, what is kept, and that it can be undone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import methods
from altmin.calculus.context import LOCAL, Context
from altmin.core.chain import Theta
from altmin.core.codes.choose import choose
from altmin.core.codes.links import OutputLoss, Segment
from altmin.core.losses import adapt
from altmin.core.step import encode, move_codes
from altmin.layers import Readout, Recurrent
from altmin.runners.precision import current, using


def fits_bf16(a: Tensor) -> Tensor:
    """Which of the entries that are not zero are whole in bfloat16."""
    a = a[a != 0]
    return a == a.bfloat16().to(a.dtype)


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
    "sequential": (elman, (5, 6, 2), "exact"),
}
EVERY_NET = pytest.mark.parametrize("net", NETS)


def problem(net: str) -> tuple[nn.Module, Tensor, Tensor, Any]:
    make, shape, codes = NETS[net]
    model = make()
    return model, torch.randn(shape), torch.randint(4, shape[:1]), choose(codes, altmin.split(model))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@EVERY_NET
def test_codes_meet_weights_only_in_rounded_products(net: str) -> None:
    """After the same forward pass, weights that round to the same numbers leave the same deltas, bit by bit; not so in
    float32."""
    model, x, y, codes = problem(net)
    chain = altmin.split(model)
    theta = chain.parameters()
    short = [[p.bfloat16().float() if p.ndim > 1 else p for p in block] for block in theta]

    @torch.no_grad()
    def deltas(theta_of_codes: Theta, context: Context) -> list[Tensor]:
        if context.bf16:
            theta_of_codes = [block.operands(p) for block, p in zip(chain.blocks, theta_of_codes, strict=True)]
        values, states = encode(chain.blocks, theta, x, context)
        top = OutputLoss(adapt(nn.CrossEntropyLoss()), values[-1], y, torch.tensor(0.1), context)
        moves = codes(Segment(chain.blocks, theta_of_codes, values[:-1], states, context), top)
        return [problem.delta.clone() for problem in moves.problems]

    with using("bf16") as context:
        assert all(torch.equal(a, b) for a, b in zip(deltas(theta, context), deltas(short, context), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(deltas(theta, LOCAL), deltas(short, LOCAL), strict=True))


@EVERY_NET
def test_with_rounded_products_no_step_of_the_codes_raises_what_it_measures(net: str) -> None:
    model, x, y, codes = problem(net)
    am = altmin.AltMin(model, codes=codes, weights=altmin.LocalAdam(0.02), penalty=0.1)
    with using("bf16") as context:
        seen = [am.step(x, y, context=context) for _ in range(20)]
    assert all(at.objective <= float(at.loss) * (1 + 1e-5) for at in seen)
    assert float(seen[-1].loss) < 0.9 * float(seen[0].loss)


@EVERY_NET
def test_what_is_kept_is_float32(net: str) -> None:
    """Residuals, gradients, weights and Adam's state have more digits than bfloat16, and small steps are not
    lost on the weights."""
    model, x, y, codes = problem(net)
    weights = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    before = [p.detach().clone() for p in weights]
    chain, loss = altmin.split(model), adapt(nn.CrossEntropyLoss())
    with using("bf16") as context:
        with torch.no_grad():
            moved = move_codes(chain, chain.parameters(), codes, loss, x, y, torch.tensor(0.1), context)
        am = altmin.AltMin(model, codes=codes, weights=altmin.LocalAdam(1e-6, eps=1e-12))
        am.step(x, y, context=context)
    state = [t for s in am.optimizer.state.values() for t in s.values() if t.ndim > 1]
    kept = [moved.problems[-1].delta, *weights, *state]  # a hidden block's delta may be a product as it comes out
    assert {t.dtype for t in kept} == {torch.float32}
    assert all(fits_bf16(t).float().mean() < 0.5 for t in kept)
    for p, old in zip(weights, before, strict=True):
        change = (p.detach() - old).abs()
        assert (change > 0).float().mean() > 0.5, "a step of 1e-6 is far below the digits of bfloat16"
        assert change.max() < 2e-6


def test_a_recurrent_layer_has_rounded_weights_and_forms_its_products_in_float32() -> None:
    model, x = elman(), torch.randn(5, 6, 2)
    block, weights = altmin.split(model).blocks[0], (model[0].weight_ih_l0, model[0].weight_hh_l0)
    with using("bf16") as context:
        h = block.forward(block.operands(list(model[0].parameters())[:3]), x, context)[0]
        model[0].weight_ih_l0.data, model[0].weight_hh_l0.data = (W.bfloat16().float() for W in weights)
    assert torch.equal(h, model[0](x))


@pytest.fixture
def own_flags() -> Iterator[None]:
    """Whatever a test sets, the next one finds torch's own choice."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def flags() -> tuple[Any, ...]:
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return matmul, cudnn, torch.get_float32_matmul_precision()


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
        with using(name) as context:
            seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, context.bf16))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [(*inside, name == "bf16")]
    assert flags() == as_found


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
    with using(name) as context:
        losses = [method.step(x, y, context=context).loss for _ in range(3)]
    found = [losses[-1], *method.model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert {p.dtype for p in method.model.parameters()} == {torch.float32}


def test_the_precision_in_use_has_a_name_on_every_device() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for name in ("float32", "tf32", "bf16"):
        with using(name) as context:
            assert current(cuda, context) == name
            assert current(cpu, context) == ("bf16" if name == "bf16" else "float32")
    with using("float32"):
        torch.backends.cudnn.allow_tf32 = True
        assert current(cuda) == "tf32 of convolutions alone"
