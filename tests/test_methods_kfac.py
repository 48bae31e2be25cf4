"""K-FAC from its equations, in float64."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import methods
from altmin.calculus.context import LOCAL, Context
from altmin.core.losses import adapt
from altmin.methods.kfac import drawn_gradient, inverse

F64 = torch.float64


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


WEIGHTS = torch.tensor([0.3, 2.0, 1.0], dtype=F64)
LABELS = torch.tensor([2, 0])
LOSSES: dict[str, tuple[Any, Tensor, Context]] = {
    "labels": (nn.CrossEntropyLoss(), LABELS, LOCAL),
    "smoothed and weighted labels": (nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1), LABELS, LOCAL),
    "an ignored label": (nn.CrossEntropyLoss(), torch.tensor([1, -100]), LOCAL),
    "labels that add": (nn.CrossEntropyLoss(reduction="sum"), LABELS, LOCAL),
    "squared errors": (nn.MSELoss(), numbers(2, 3, seed=4), LOCAL),
    "squared errors of weighted samples": (nn.MSELoss(), numbers(2, 3, seed=4), Context(weights=WEIGHTS[:2])),
    "sigmoids": (
        lambda o, y: nn.functional.binary_cross_entropy_with_logits(o, y, reduction="sum") / len(y),
        numbers(2, 3, seed=4).sigmoid(),
        LOCAL,
    ),
}


@pytest.mark.parametrize("case", LOSSES)
def test_the_drawn_gradient_has_the_hessian_as_its_covariance(case: str) -> None:
    """Exactly, in the mean over all signs that could be drawn for one sample; samples are independent."""
    loss, y, context = LOSSES[case]
    output = numbers(2, 3, seed=3)

    def value(o: Tensor) -> Tensor:
        if context.weights is None:
            return loss(o, y)
        return (context.weights * (o - y).square().mean(1)).sum() / context.weights.sum()

    H = torch.autograd.functional.hessian(value, output)
    signs = [torch.tensor(each, dtype=F64) for each in itertools.product((-1.0, 1.0), repeat=3)]
    drawn = [drawn_gradient(adapt(loss), output, y, context, lambda shape, v=v: v.expand(shape)) for v in signs]
    for i in range(2):
        covariance = sum(torch.outer(s[i], s[i]) for s in drawn) / len(drawn)
        torch.testing.assert_close(covariance, H[i, :, i], rtol=1e-9, atol=1e-12)


def test_of_a_loss_that_mixes_entries_the_drawn_gradient_is_that_of_every_sample() -> None:
    loss, output, y = (lambda o, y: (o.sum(1) - y).abs().mean()), numbers(4, 3), numbers(4, seed=1)
    s = drawn_gradient(adapt(loss), output, y, LOCAL, torch.ones)
    torch.testing.assert_close(s, (output.sum(1) - y).sign().unsqueeze(1).expand(4, 3) / 4**0.5)


def test_one_step_on_a_linear_layer_solves_least_squares() -> None:
    """There the Fisher matrix is the Hessian, and a step of length one Newton's."""
    x, y, model = numbers(9, 4), numbers(9, 1, seed=1), nn.Linear(4, 1).to(F64)
    method = methods.create("kfac", model, lr=1.0, momentum=0.0, damping=1e-20, kl_clip=1e9, loss=nn.MSELoss())
    method.step(x, y)
    found = torch.cat([model.weight.detach().T, model.bias.detach().unsqueeze(0)])
    expected = torch.linalg.lstsq(torch.cat([x, torch.ones(9, 1, dtype=F64)], 1), y).solution
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


OPTIONS = {"lr": 0.2, "momentum": 0.6, "weight_decay": 0.1, "damping": 0.02, "precondition_frequency": 2}


@pytest.mark.parametrize("kl_clip", [1e-4, 1e9])
@pytest.mark.parametrize("every, decay_biases", [(1, True), (3, False)])
def test_steps_are_those_of_the_equations(kl_clip: float, every: int, decay_biases: bool) -> None:
    """With one output the drawn signs do not matter. The Kronecker product is inverted as a whole."""

    def made() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)).to(F64)

    model, lr, damping = made(), OPTIONS["lr"], OPTIONS["damping"]
    options = {**OPTIONS, "kl_clip": kl_clip, "factor_frequency": every, "decay_biases": decay_biases}
    method = methods.create("kfac", made(), loss=nn.MSELoss(), **options)
    first, last = model[0], model[2]
    kept: list[Any] = [None, None]
    inverses: list[Any] = [None, None]
    M = [torch.zeros(4, 4, dtype=F64), torch.zeros(1, 4, dtype=F64)]
    for t in range(7):
        x, y = numbers(6, 3, seed=t), numbers(6, 1, seed=t + 50)
        grads = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))
        dW = [torch.cat([grads[0], grads[1].unsqueeze(1)], 1), grads[2]]
        with torch.no_grad():
            h = torch.tanh(first(x))
            inputs = [torch.cat([x, torch.ones(6, 1, dtype=F64)], 1), h]
            deltas = [last.weight * (1 - h**2), torch.ones(6, 1, dtype=F64)]  # of the output; its Hessian is 2 / 6
            for l in range(2):
                if t % every == 0:
                    A = sum(torch.outer(a, a) for a in inputs[l]) / 6
                    G = sum(torch.outer(d, d) for d in deltas[l]) * 2 / 6
                    old = 0.0 if t == 0 else min(1 - 1 / (t // every + 1), 0.95)
                    kept[l] = (
                        (A, G)
                        if t == 0
                        else tuple(old * b + (1 - old) * n for b, n in zip(kept[l], (A, G), strict=True))
                    )
                A, G = kept[l]
                if t < 3 or (t + 1) % 2 == 0:
                    pi = ((A.trace() / len(A)) / (G.trace() / len(G))) ** 0.5
                    A = A + pi * damping**0.5 * torch.eye(len(A), dtype=F64)
                    G = G + damping**0.5 / pi * torch.eye(len(G), dtype=F64)
                    inverses[l] = torch.linalg.inv(torch.kron(G, A))
            M = [0.6 * m + 0.4 * g for m, g in zip(M, dW, strict=True)]
            V = [(inverses[l] @ M[l].flatten()).view_as(M[l]) for l in range(2)]
            slope = sum(float((v * m).sum()) for v, m in zip(V, M, strict=True))
            scale = min(1.0, (kl_clip / (lr**2 * slope)) ** 0.5)
            assert (scale < 1) == (kl_clip < 1)
            for i, (p, v) in enumerate(zip(model.parameters(), (V[0][:, :-1], V[0][:, -1], V[1]), strict=True)):
                p -= lr * (0.1 * p * (i != 1 or decay_biases) + scale * v)
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
        for model, given in zip(models, (x, patches), strict=True):
            made = getattr(model, "method", None) or methods.create("kfac", model, loss=nn.MSELoss())
            model.method = made
            made.step(given, y)
    torch.testing.assert_close(conv.weight.flatten(1), linear.weight, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(conv.bias, linear.bias, rtol=1e-9, atol=1e-11)


def test_layers_that_are_called_twice_or_overwritten_in_place_have_all_their_inputs() -> None:
    """A mini-batch in two calls of one layer has the factors of the whole, also below an activation in place."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below, self.top = nn.Linear(3, 4), nn.Linear(4, 1)
            self.activation = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            halves = [self.activation(self.below(part)) for part in x.chunk(2)]
            return self.top(torch.cat(halves))

    torch.manual_seed(0)
    twice = Twice().to(F64)
    once = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(F64)
    for p, q in zip(once.parameters(), twice.parameters(), strict=True):
        p.data.copy_(q.data)
    made = [methods.create("kfac", model, loss=nn.MSELoss()) for model in (once, twice)]
    for t in range(4):
        for method in made:
            method.step(numbers(6, 3, seed=t), numbers(6, 1, seed=t + 9))
    torch.testing.assert_close([*once.parameters()], [*twice.parameters()], rtol=1e-9, atol=1e-11)
    assert not twice.below._forward_hooks, "the model has none of its hooks between steps"


def test_a_grouped_convolution_moves_by_adamw() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 2))
    x, y = torch.randn(8, 2, 3, 3), torch.randint(2, (8,))
    rest = [nn.Parameter(p.detach().clone()) for p in model[0].parameters()]
    grads = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model[0].parameters()))
    methods.create("kfac", model, rest_lr=0.05, weight_decay=0.3).step(x, y)
    for p, grad in zip(rest, grads, strict=True):
        p.grad = grad
    torch.optim.AdamW(rest, 0.05, weight_decay=0.3).step()
    torch.testing.assert_close(list(model[0].parameters()), rest)


@pytest.mark.parametrize("decay_biases", [True, False])
def test_other_parameters_move_by_adamw_at_a_rate_of_their_own(decay_biases: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3), nn.Flatten(), nn.Linear(6, 2))
    x, y = torch.randint(5, (8, 2)), torch.randint(2, (8,))
    method = methods.create("kfac", model, rest_lr=0.05, weight_decay=0.3, decay_biases=decay_biases)
    rest = [nn.Parameter(p.detach().clone()) for p in list(model.parameters())[:3]]
    norm = {"params": rest[1:], "weight_decay": 0.3 * decay_biases}
    adamw = torch.optim.AdamW([{"params": rest[:1]}, norm], 0.05, weight_decay=0.3)
    for _ in range(3):
        for p, grad in zip(
            rest, torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters())), strict=False
        ):
            p.grad = grad
        adamw.step()
        method.step(x, y)
    torch.testing.assert_close(list(model.parameters())[:3], rest)
    assert [group["lr"] for group in method.optimizer.param_groups] == [0.03] + [0.05] * (2 - decay_biases)


def test_an_inverse_of_a_matrix_with_rounding_below_zero() -> None:
    vectors = torch.linalg.qr(numbers(3, 3)).Q
    M = vectors @ torch.diag(torch.tensor([1.0, 1e-3, -1e-6], dtype=F64)) @ vectors.T
    expected = vectors @ torch.diag(torch.tensor([1 / (1 + 1e-8), 1 / (1e-3 + 1e-8), 1e8], dtype=F64)) @ vectors.T
    torch.testing.assert_close(inverse(M, torch.tensor(1e-8, dtype=F64)), expected, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("damping", 0.0, "damping of kfac must be a finite number above 0, given 0.0"),
        ("kl_clip", -1.0, "kl_clip of kfac must be a finite number above 0, given -1.0"),
        ("precondition_frequency", 0, "precondition_frequency of kfac must be a whole number of at least 1, given 0"),
        ("factor_frequency", 1.5, "factor_frequency of kfac must be a whole number of at least 1, given 1.5"),
        ("momentum", 1.0, "momentum of kfac lies between 0 and 1, and is not 1, given 1.0"),
        ("lr", -0.1, "lr of kfac must be a finite number of at least 0, given -0.1"),
    ],
)
def test_options_that_cannot_be_are_refused(option: str, value: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        methods.create("kfac", nn.Linear(2, 2), **{option: value})
