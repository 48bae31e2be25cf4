"""K-FAC from its equations, in float64."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import methods
from altmin.common.errors import Diverged
from altmin.core.losses import adapt
from reproduction.opponents.kfac import drawn_gradient

F64 = torch.float64


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


LOSSES: dict[str, tuple[Any, Tensor]] = {
    "labels": (nn.CrossEntropyLoss(), torch.tensor([2, 0])),
    "squared errors": (nn.MSELoss(), numbers(2, 3, seed=4)),
    "sigmoids": (
        lambda o, y: nn.functional.binary_cross_entropy_with_logits(o, y, reduction="sum") / len(y),
        numbers(2, 3, seed=4).sigmoid(),
    ),
}


@pytest.mark.parametrize("case", LOSSES)
def test_the_drawn_gradient_has_the_hessian_as_its_covariance(case: str) -> None:
    """Exactly, in the mean over all signs that could be drawn for one sample; samples are independent."""
    loss, y = LOSSES[case]
    output = numbers(2, 3, seed=3)
    H = torch.autograd.functional.hessian(lambda o: loss(o, y), output)
    signs = [torch.tensor(each, dtype=F64) for each in itertools.product((-1.0, 1.0), repeat=3)]
    drawn = [drawn_gradient(adapt(loss), output, y, v.expand(2, 3)) for v in signs]
    for i in range(2):
        covariance = sum(torch.outer(s[i], s[i]) for s in drawn) / len(drawn)
        torch.testing.assert_close(covariance, H[i, :, i], rtol=1e-9, atol=1e-12)


OPTIONS = {"lr": 0.2, "momentum": 0.6, "damping": 0.02}


@pytest.mark.parametrize("kl_clip", [1e-4, 1e9])
def test_steps_are_those_of_the_equations(kl_clip: float) -> None:
    """With one output the drawn signs do not matter. The Kronecker product is inverted as a whole."""

    def made() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)).to(F64)

    model, lr, damping = made(), OPTIONS["lr"], OPTIONS["damping"]
    method = methods.create("kfac", made(), loss=nn.MSELoss(), kl_clip=kl_clip, **OPTIONS)
    first, last = model[0], model[2]
    kept: list[Any] = [None, None]
    inverses: list[Any] = [None, None]
    M = [torch.zeros(4, 4, dtype=F64), torch.zeros(1, 4, dtype=F64)]
    for t in range(11):
        x, y = numbers(6, 3, seed=t), numbers(6, 1, seed=t + 50)
        grads = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))
        dW = [torch.cat([grads[0], grads[1].unsqueeze(1)], 1), grads[2]]
        with torch.no_grad():
            h = torch.tanh(first(x))
            inputs = [torch.cat([x, torch.ones(6, 1, dtype=F64)], 1), h]
            deltas = [last.weight * (1 - h**2), torch.ones(6, 1, dtype=F64)]  # of the output; its Hessian is 2 / 6
            for l in range(2):
                A = sum(torch.outer(a, a) for a in inputs[l]) / 6
                G = sum(torch.outer(d, d) for d in deltas[l]) * 2 / 6
                old = min(1 - 1 / (t + 1), 0.95)
                if t:
                    A, G = (old * b + (1 - old) * n for b, n in zip(kept[l], (A, G), strict=True))
                kept[l] = A, G
                if t < 3 or (t + 1) % 10 == 0:
                    pi = ((A.trace() / len(A)) / (G.trace() / len(G))) ** 0.5
                    A = A + pi * damping**0.5 * torch.eye(len(A), dtype=F64)
                    G = G + damping**0.5 / pi * torch.eye(len(G), dtype=F64)
                    inverses[l] = torch.linalg.inv(torch.kron(G, A))
            M = [0.6 * m + 0.4 * g for m, g in zip(M, dW, strict=True)]
            V = [(inverses[l] @ M[l].flatten()).view_as(M[l]) for l in range(2)]
            slope = sum(float((v * m).sum()) for v, m in zip(V, M, strict=True))
            scale = min(1.0, (kl_clip / (lr**2 * slope)) ** 0.5)
            assert (scale < 1) == (kl_clip < 1)
            for p, v in zip(model.parameters(), (V[0][:, :-1], V[0][:, -1], V[1]), strict=True):
                p -= lr * scale * v
        method.step(x, y)
        torch.testing.assert_close([*method.model.parameters()], [*model.parameters()], rtol=1e-9, atol=1e-11)


def test_a_convolution_is_the_linear_layer_of_its_patches() -> None:
    """Its factors, for an output that is their sum at all places: as of a Linear layer on the patches."""
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 2).to(F64)
    linear = nn.Linear(8, 3).to(F64)
    with torch.no_grad():
        linear.weight.copy_(conv.weight.flatten(1))
        linear.bias.copy_(conv.bias)
    x, y = numbers(5, 2, 3, 3), numbers(5, 1, seed=1)
    patches = nn.functional.unfold(x, 2).mT

    def top(places: int) -> nn.Module:
        read = nn.Linear(3 * places, 1).to(F64).requires_grad_(False)
        nn.init.constant_(read.weight, 0.3)
        nn.init.zeros_(read.bias)
        return read

    models = [
        nn.Sequential(conv, nn.Tanh(), nn.Flatten(), top(4)),
        nn.Sequential(linear, nn.Tanh(), nn.Flatten(), top(4)),
    ]
    for _ in range(3):
        for model, rows in zip(models, (x, patches), strict=True):
            made = getattr(model, "method", None) or methods.create("kfac", model, loss=nn.MSELoss())
            model.method = made
            made.step(rows, y)
    torch.testing.assert_close(conv.weight.flatten(1), linear.weight, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(conv.bias, linear.bias, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["soap", "shampoo"])
def test_optimizers_of_the_package_learn(name: str) -> None:
    pytest.importorskip("pytorch_optimizer")
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), torch.randn(50, 4), torch.randint(3, (50,))
    method = methods.create(name, model)
    losses = [float(method.step(x, y).loss) for _ in range(60)]
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize("name", ["soap", "kfac"])
def test_a_matrix_that_cannot_be_factored_is_a_divergence(name: str) -> None:
    if name == "soap":
        pytest.importorskip("pytorch_optimizer")
    method = methods.create(name, nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    with pytest.raises(Diverged):
        method.step(torch.full((6, 4), torch.nan), torch.arange(6) % 3)
