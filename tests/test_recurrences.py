"""The recurrence of many members at once is that of each, forward and backward, and one's NaN is not another's."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from altmin.layers.recurrence import Recurrences, opaque_recurrence, recurrence


def together(*given: Tensor) -> Tensor:
    return Recurrences.apply("RNN_TANH", *given)


def opaque(*given: Tensor) -> Tensor:
    return opaque_recurrence("RNN_TANH", *given)


def alone(*given: Tensor) -> Tensor:
    return recurrence("RNN_TANH", *given)


MEMBERS, STEPS, SAMPLES, INPUTS, HIDDEN = 3, 5, 2, 2, 4
F64 = torch.float64


def problem() -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(0)
    x = torch.randn(MEMBERS, STEPS, SAMPLES, INPUTS, dtype=F64)
    shapes = [(HIDDEN, INPUTS), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN,)]
    return x, [0.7 * torch.randn(MEMBERS, *shape, dtype=F64) for shape in shapes]


def by_definition(x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor) -> Tensor:
    h, states = torch.zeros(len(x[0]), len(W), dtype=x.dtype), []
    for step in x:
        h = torch.tanh(step @ U.T + h @ W.T + b + b2)
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("function", [alone, opaque, together])
def test_one_layer_is_the_loop_it_stands_for(function):
    x, weights = problem()
    given = x[0], *(w[0] for w in weights)
    torch.testing.assert_close(function(*given), by_definition(*given))


@pytest.mark.parametrize("function", [opaque, together])
@pytest.mark.parametrize("shared", [False, True])
def test_many_members_give_what_each_gives_alone(shared, function):
    x, weights = problem()
    inputs = (None if shared else 0, 0, 0, 0, 0)
    found = vmap(function, in_dims=inputs)(x[0] if shared else x, *weights)
    for i in range(MEMBERS):
        torch.testing.assert_close(found[i], by_definition(x[0 if shared else i], *(w[i] for w in weights)))


def test_many_members_have_the_gradients_each_has_alone():
    x, weights = problem()
    v = torch.randn(MEMBERS, STEPS, SAMPLES, HIDDEN, dtype=F64)

    def gradients(v: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vjp(together, *given)[1](v)

    found = vmap(gradients)(v, x, *weights)
    for i in range(MEMBERS):
        given = [t[i].clone().requires_grad_() for t in (x, *weights)]
        wanted = torch.autograd.grad(by_definition(*given), given, v[i])
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a[i], b)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["input", "weights"])
def test_what_is_not_finite_in_one_member_reaches_no_other(bad, where):
    x, weights = problem()
    sound = vmap(together)(x, *weights)
    if where == "input":
        x[1, 2, 0, 0] = bad
    else:
        weights[1][1, 0, 0] = bad
    found = vmap(together)(x, *weights)
    torch.testing.assert_close(found[[0, 2]], sound[[0, 2]])
