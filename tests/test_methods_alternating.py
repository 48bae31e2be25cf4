"""The online methods are the compositions that their names stand for; the paper's AM-mem is its Algorithms 1 to 3."""

import pytest
import reference
import torch
from coactivation_cases import batch, joined, mlp, pairs
from conftest import update_codes
from torch import nn

import altmin


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return altmin.models.mlp(4, (5, 6), 3, nn.Tanh).double()


COMPOSITIONS = {
    "am-adam": (
        {"lr": 0.02, "weight_decay": 0.1, "l1": 0.01, "penalty": 2.0},
        lambda: {"weights": altmin.LocalAdam(0.02, weight_decay=0.1, l1=0.01), "penalty": 2.0},
    ),
    "am-sgd": (
        {"lr": 0.05, "momentum": 0.7, "weight_decay": 0.1, "l1": 0.01},
        lambda: {"weights": altmin.LocalSGD(0.05, momentum=0.7, weight_decay=0.1, l1=0.01)},
    ),
    "am-mem": (
        {"lr": 0.02, "length": "adam", "beta": 0.8, "forget": 0.7, "damping": 0.3}
        | {"rank": 4, "weight_decay": 0.1, "decay_biases": False, "penalty": 2.0},
        lambda: {
            "weights": altmin.CoActivationMemory(
                0.02, 0.8, 0.7, 0.3, length="adam", rank=4, weight_decay=0.1, decay_biases=False
            ),
            "penalty": 2.0,
        },
    ),
    "am-mem-fitted": (
        {"lr": 0.01, "forget": 0.8, "damping": 3.0, "rate": 50.0},
        lambda: {"weights": altmin.FittedMemory(0.8, 3.0, None, 50.0, altmin.LocalAdam(0.01))},
    ),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_method_is_the_composition_of_its_parts(name: str) -> None:
    options, parts = COMPOSITIONS[name]
    named, composed = altmin.methods.create(name, net(), **options), altmin.AltMin(net(), **parts())
    for _ in range(3):
        x, y = torch.randn(7, 4, dtype=torch.float64), torch.randint(3, (7,))
        assert torch.equal(named.step(x, y).loss, composed.step(x, y).loss)
    named.end_epoch()
    composed.end_epoch()
    torch.testing.assert_close([*named.model.parameters()], [*composed.model.parameters()], rtol=0, atol=0)


# -- the paper's AM-mem, as printed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sweeps, mu", [(1, None), (3, 0.2)])
def test_am_mem_printed_is_the_papers_algorithms_1_to_3(sweeps: int, mu: float | None) -> None:
    """Encode; move one code after the other, from the last; sum A and B since the first batch; sweep over the columns
    of every hidden W; a step of SGD on the last one."""
    model, twin = mlp(), mlp()
    options = {} if mu is None else {"penalty": mu}
    am = altmin.methods.create("am-mem-printed", model, lr=0.3, sweeps=sweeps, **options)
    seen: list[list] = [[], []]
    for i in range(4):
        x, y = batch(i)
        net = reference.of(twin)
        found = reference.Codes(steps=5, share=1.0).update(net, x, y, mu or 0.01, reference.cross_entropy)
        for l, all_pairs in enumerate(seen):
            all_pairs += pairs(twin, [x, *found.codes], l)
            W, (A, B) = joined(twin[2 * l]), reference.memory(all_pairs)
            for _ in range(sweeps):
                W = reference.coordinate_descent(W, A, B)
            twin[2 * l].weight.data, twin[2 * l].bias.data = W[:, :-1].clone(), W[:, -1].clone()
        head = nn.Linear(6, 3).double()
        head.load_state_dict(twin[4].state_dict())
        reference.cross_entropy(head(torch.tanh(found.codes[-1])), y).backward()
        for p, q in zip(twin[4].parameters(), head.parameters(), strict=True):
            p.data -= 0.3 * q.grad
        am.step(x, y)
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-7, atol=1e-8)


def test_printed_codes_solve_the_papers_problems_if_they_take_many_steps() -> None:
    """Gradients of Algorithm 2's problems vanish: for the last code with the loss, for the one below with the code
    above where that has moved to."""
    model, (x, y), mu = mlp(), batch(0), 0.3
    printed = altmin.AltMin(model, codes="printed").codes
    assert (printed.steps, printed.share) == (5, 1.0)
    codes = altmin.GradientCodes(steps=500, share=printed.share)
    (first, home, _), (low, high), _ = update_codes(model, codes, x, y, mu)
    net = reference.of(model)

    def last(c: torch.Tensor) -> torch.Tensor:
        return len(x) * reference.cross_entropy(net.layer(2, c), y) + mu * (c - home).square().sum()

    def lower(c: torch.Tensor) -> torch.Tensor:
        return mu * (high - net.layer(1, c)).square().sum() + mu * (c - first).square().sum()

    for function, c, start in ((last, high, home), (lower, low, first)):
        assert reference.gradient(function, c).norm() < 1e-6 * reference.gradient(function, start).norm()
