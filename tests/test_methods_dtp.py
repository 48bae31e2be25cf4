"""Difference target propagation against a reference by autograd, and its messages."""

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from method_cases import problem
from torch import Tensor, nn

import altmin
from altmin.layers import Sign, Staircase
from altmin.methods.rivals.dtp import Units

F64 = torch.float64

# state(z) and message(s) of each activation, as the paper defines them
KINDS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    nn.Tanh: (torch.tanh, lambda s: s),
    nn.Sigmoid: (torch.sigmoid, lambda s: s),
    nn.ReLU: (torch.relu, lambda s: s),
    Sign: (torch.tanh, lambda s: torch.where(s < 0, -1.0, 1.0).to(s.dtype)),
    Staircase: (torch.tanh, lambda s: Staircase(4)(torch.atanh(s.clamp(-1 + 1e-12, 1 - 1e-12)))),
}
NETS = {
    "tanh": (nn.Tanh, nn.Tanh),
    "sigmoid": (nn.Sigmoid, nn.Sigmoid, nn.Sigmoid),
    "relu": (nn.ReLU, nn.ReLU),
    "sign, tanh": (Sign, nn.Tanh),
    "sign, sign, relu": (Sign, Sign, nn.ReLU),
    "staircase, tanh, tanh": (Staircase, nn.Tanh, nn.Tanh),
    "one hidden layer": (nn.Tanh,),
    "no hidden layer": (),
}


def net(*kinds: type[nn.Module], bias: bool = True, width: int = 5) -> nn.Sequential:
    torch.manual_seed(3)
    sizes = [4, *(width + l for l in range(len(kinds)))]
    hidden = [(nn.Linear(m, n, bias=bias), kind()) for (m, n), kind in zip(pairwise(sizes), kinds, strict=True)]
    return nn.Sequential(*(part for pair in hidden for part in pair), nn.Linear(sizes[-1], 3)).double()


def with_sgd(model: nn.Module, **options: Any) -> Any:
    """The method with steps of size one along its gradients."""
    return along_gradients(altmin.methods.create("dtp", model, **options))


def along_gradients(method: Any) -> Any:
    method.optimizer = torch.optim.SGD([{"params": g["params"]} for g in method.optimizer.param_groups], 1.0)
    return method


def values(method: Any) -> list[Tensor]:
    return [p.detach().clone() for p in (*method.model.parameters(), *method.inverses.parameters())]


def gradients(method: Any, x: Tensor, y: Tensor) -> list[Tensor]:
    """Of a method with SGD: those of the weights in order, then those of the inverses."""
    before = values(method)
    method.step(x, y)
    return [a - b for a, b in zip(before, values(method), strict=True)]


def reference(method: Any, x: Tensor, y: Tensor, loss: Any, eta: float, noise: float, scale: int) -> list[Tensor]:
    """The same, each by autograd on a loss of its own: nothing else is differentiated. scale: how many times the loss
    its sum over samples is."""
    model, inverses = copy.deepcopy((method.model, method.inverses))
    linears = [m for m in model if isinstance(m, nn.Linear)]
    kinds = [KINDS[type(m)] for m in model if not isinstance(m, nn.Linear)]
    n, inputs, states = len(x), [x], []
    for linear, (state, message) in zip(linears, kinds, strict=False):
        states.append(state(linear(inputs[-1])))
        inputs.append(message(states[-1].detach()))

    def g(l: int, s: Tensor) -> Tensor:
        """From the states of hidden layer l to those of layer l - 1."""
        return kinds[l - 1][0](s @ inverses[l - 1].weight.T + inverses[l - 1].bias)

    top = inputs[-1].clone().requires_grad_()
    final = loss(linears[-1](top), y)
    final.backward()  # the weights of the output layer get their gradient, and so does the last state
    t = inputs[-1] - eta * scale * top.grad
    for l in reversed(range(len(states))):
        ((states[l] - t.detach()) ** 2).sum().div(n).backward()
        t = states[l - 1] - g(l, states[l]) + g(l, t) if l else t
    model_gradients = [p.grad for p in model.parameters()]
    for l in range(1, len(states)):
        noisy = states[l - 1].detach() + noise * torch.randn_like(states[l - 1])
        sent = kinds[l][0](linears[l](kinds[l - 1][1](noisy))).detach()
        inverses.zero_grad()
        ((g(l, sent) - noisy) ** 2).sum().div(n).backward()
        model_gradients += [inverses[l - 1].weight.grad, inverses[l - 1].bias.grad]
    return model_gradients


CROSS_ENTROPY, SQUARED, SUMMED = nn.CrossEntropyLoss(), nn.MSELoss(), nn.MSELoss(reduction="sum")


@pytest.mark.parametrize(
    "name, bias, loss, eta, noise",
    [
        *((name, True, CROSS_ENTROPY, eta, noise) for name in NETS for eta, noise in ((1.0, 0.3), (0.2, 0.0))),
        *(("sign, tanh", bias, loss, 1.0, 0.3) for bias in (True, False) for loss in (SQUARED, SUMMED, nn.L1Loss())),
    ],
)
def test_every_gradient_is_that_of_its_own_layers_loss(
    name: str, bias: bool, loss: nn.Module, eta: float, noise: float
) -> None:
    x, y = problem(dtype=F64)
    y = y if loss is CROSS_ENTROPY else nn.functional.one_hot(y, 3).double()
    method = with_sgd(net(*NETS[name], bias=bias), loss=loss, eta=eta, noise=noise)
    torch.manual_seed(11)
    expected = reference(method, x, y, loss, eta, noise, 1 if loss is SUMMED else len(x))
    torch.manual_seed(11)
    torch.testing.assert_close([*gradients(method, x, y)], [*expected], rtol=1e-9, atol=1e-12)


def test_a_step_is_one_of_rmsprop_with_a_rate_for_weights_and_one_for_inverses() -> None:
    x, y = problem(dtype=F64)
    method: Any = altmin.methods.create("dtp", net(nn.Tanh, nn.Tanh), lr=0.01, lr_inverse=0.03)
    torch.manual_seed(11)
    expected = gradients(along_gradients(copy.deepcopy(method)), x, y)
    torch.manual_seed(11)
    before = values(method)
    method.step(x, y)
    for l, (a, b, g) in enumerate(zip(before, values(method), expected, strict=True)):
        rate = 0.01 if l < 6 else 0.03
        torch.testing.assert_close(a - b, rate * g / ((0.01 * g**2).sqrt() + 1e-8), rtol=1e-6, atol=1e-9)


# ---- states and messages


@pytest.mark.parametrize("units", [Units(Sign()), *(Units(Staircase(n)) for n in (2, 3, 4, 7))])
def test_the_message_of_a_state_is_the_activations_value_also_for_states_beyond_one(units: Any) -> None:
    z = torch.linspace(-3, 3, 1001, dtype=F64) + 1e-4
    expected = units.module(z)
    s, m = units.both(z)
    assert torch.equal(s, torch.tanh(z))
    assert torch.equal(m, expected)
    assert torch.equal(units.message(s), expected)
    assert units.message(torch.tensor([-1.0, -1.7, 1.0, 2.0], dtype=F64)).tolist() == [-1, -1, 1, 1]


def test_a_step_through_a_sign_records_no_graph() -> None:
    x, y = problem(dtype=F64)
    method = altmin.methods.create("dtp", net(Sign, nn.Tanh))

    def refuse(_: Tensor) -> Any:
        raise AssertionError("a tensor was kept for a backward pass")

    with torch.autograd.graph.saved_tensors_hooks(refuse, lambda kept: kept):
        with pytest.raises(AssertionError, match="was kept"):  # as in backprop
            method.model[2:](torch.sign(x @ x.T[:, :5]))
        method.step(x, y)


def test_an_activation_without_derivative_is_refused_in_the_last_hidden_layer() -> None:
    with pytest.raises(TypeError, match="last hidden"):
        altmin.methods.create("dtp", net(nn.Tanh, Sign))
