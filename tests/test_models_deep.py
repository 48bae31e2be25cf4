"""Residual nets and transformers compute their formulas, have a code for every block, and are trained by alternating
minimization; tokens are drawn from a transformer's own distribution."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.models import gpt, mlp, residual_mlp, resnet18, sample


def test_it_is_its_formula_on_flattened_samples() -> None:
    torch.manual_seed(0)
    model, x = residual_mlp(5, 3, 6, 4), torch.randn(2, 1, 2, 3)
    first, *blocks, last = [m.weight for m in model if not isinstance(m, nn.Flatten)]
    assert (first.shape, [W.shape for W in blocks], last.shape) == ((5, 6), [(5, 5)] * 3, (4, 5))
    h = x.flatten(1) @ first.T
    for W in blocks:
        h = h + F.relu(h) @ W.T / 3**0.5
    torch.testing.assert_close(model(x), h @ last.T)
    assert sum(p.numel() for p in model.parameters()) == 5 * 6 + 3 * 25 + 4 * 5, "no biases"


@pytest.mark.parametrize("depth", [1, 8, 64])
def test_at_any_depth_the_stream_grows_by_at_most_the_root_of_e(depth: int) -> None:
    """E |x + W relu(x) / sqrt(L)|^2 = (1 + 1 / 2L) |x|^2 for weights N(0, 1 / width) and half of the units at work."""
    torch.manual_seed(0)
    model, x = residual_mlp(400, depth, 300), torch.randn(200, 300)
    stream = model[:-1](x)
    first = model[:2](x)
    assert first.var().item() == pytest.approx(1.0, rel=0.1)
    growth = (1 + 0.5 / depth) ** depth
    assert (stream.square().mean() / first.square().mean()).item() == pytest.approx(growth, rel=0.15)
    assert model(x).var().item() == pytest.approx(growth / 400, rel=0.3)


def normed(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    """Batch norm by the batch's own statistics."""
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
    weight, bias = (state[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
    return (x - mean) / (var + 1e-5).sqrt() * weight + bias


def by_hand(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The net in training, from its parameters alone: eight blocks, numbers 3 to 10 of the Sequential."""
    h = F.relu(normed(F.conv2d(x, state["0.weight"], padding=1), state, "1"))
    for i in range(8):
        at, stride = str(3 + i), 2 if i in (2, 4, 6) else 1
        inner = F.relu(normed(F.conv2d(h, state[f"{at}.conv1.weight"], stride=stride, padding=1), state, f"{at}.bn1"))
        branch = normed(F.conv2d(inner, state[f"{at}.conv2.weight"], padding=1), state, f"{at}.bn2")
        if stride == 2:
            h = normed(F.conv2d(h, state[f"{at}.shortcut.0.weight"], stride=2), state, f"{at}.shortcut.1")
        h = F.relu(h + branch)
    return h.mean((2, 3)) @ state["13.weight"].T + state["13.bias"]


def test_a_resnet_is_its_formula() -> None:
    torch.manual_seed(0)
    model, x = resnet18(2, classes=5, channels=1).double(), torch.randn(3, 1, 16, 12, dtype=torch.float64)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    torch.testing.assert_close(model(x), by_hand(dict(model.named_parameters()), x))


def test_convolutions_start_with_a_variance_of_two_over_outputs_times_window() -> None:
    torch.manual_seed(0)
    model = resnet18(32)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            window = module.kernel_size[0] ** 2
            # three standard errors of the variance of n normal numbers
            slack = 3 * (2 / module.weight.numel()) ** 0.5
            assert module.weight.var().item() == pytest.approx(2 / (window * module.out_channels), rel=slack)


def layer_normed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def gelu(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt_by_hand(model: nn.Sequential, tokens: list[int], heads: int) -> Tensor:
    """The outputs for one sequence, place by place and head by head."""
    embedding, *layers, head = model
    h = [embedding.token.weight[token] + embedding.position.weight[t] for t, token in enumerate(tokens)]
    for attention, perceptron in zip(layers[::2], layers[1::2], strict=True):
        qkv = [attention.attend(layer_normed(each, attention.norm)).chunk(3) for each in h]
        size, new = len(h[0]) // heads, []
        for t in range(len(h)):
            found = []
            for part in (slice(i * size, (i + 1) * size) for i in range(heads)):
                scores = torch.stack([qkv[t][0][part] @ qkv[s][1][part] for s in range(t + 1)]) / math.sqrt(size)
                found.append(sum(w * qkv[s][2][part] for s, w in enumerate(scores.exp() / scores.exp().sum())))
            new.append(h[t] + attention.project(torch.cat(found)))
        h = [x + perceptron.project(gelu(perceptron.expand(layer_normed(x, perceptron.norm)))) for x in new]
    return torch.stack([head.linear.weight @ layer_normed(x, head.norm) for x in h])


def test_a_gpt_is_its_formula() -> None:
    torch.manual_seed(0)
    model = gpt(2, 6, 3, 5, 4).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    tokens = torch.randint(4, (2, 5))
    expected = torch.stack([gpt_by_hand(model, row, 3) for row in tokens.tolist()])
    torch.testing.assert_close(model(tokens), expected)
    torch.testing.assert_close(model(tokens[:, :2]), expected[:, :2])


def test_weights_start_as_those_of_gpt_2() -> None:
    torch.manual_seed(0)
    for name, p in gpt(3, 128, 4, 64, 64).named_parameters():
        if "norm" in name or name.endswith("bias"):
            assert torch.equal(p, torch.full_like(p, float("norm.weight" in name))), name
        else:
            std = 0.02 / math.sqrt(6) if "project" in name else 0.02
            assert p.std().item() == pytest.approx(std, rel=3 / (2 * p.numel()) ** 0.5), name


def test_alternating_minimization_learns_to_repeat_the_token_three_back() -> None:
    """All tokens are equally likely, so without looking back the loss is log 8 = 2.08; two attentions find it."""
    torch.manual_seed(0)
    model = gpt(2, 32, 2, 10, 8)
    am = altmin.AltMin(
        model,
        codes=altmin.GradientCodes(order="weights-first"),
        weights=altmin.LocalAdam(lr=0.003),
    )
    losses = []
    for _ in range(120):
        x = torch.randint(8, (32, 10))
        y = torch.full_like(x, -100)
        y[:, 3:] = x[:, :-3]
        losses.append(float(am.step(x, y).loss))
    assert losses[0] == pytest.approx(math.log(8), rel=0.01)
    assert max(losses[-10:]) < 0.1 * math.log(8)


def successor(probabilities: list[list[float]]) -> nn.Sequential:
    """A gpt of 3 tokens whose next token depends on the last one alone, with these probabilities (row: the last)."""
    model = gpt(1, 4, 1, 2, 3)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model[-1].norm.weight.fill_(1.0)
        # columns that sum to zero and have the same length are what the norm leaves as they are, but for a factor
        codes = torch.tensor([[1.0, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
        model[0].token.weight.copy_(codes)
        model[-1].linear.weight.copy_(torch.tensor(probabilities).log().T @ codes / 4)
    return model


def test_a_token_is_drawn_with_its_probability_to_the_power_of_one_over_the_temperature() -> None:
    model = successor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    for temperature in (1.0, 0.5):
        drawn = torch.cat([sample(model, torch.tensor([0]), 1, temperature, seed) for seed in range(500)])
        powers = [p ** (1 / temperature) for p in (0.1, 0.2, 0.7)]
        for token, power in enumerate(powers):
            share = power / sum(powers)
            slack = 4 * (share * (1 - share) / 500) ** 0.5
            assert (drawn == token).double().mean().item() == pytest.approx(share, abs=slack)
    assert sample(model, torch.tensor([1]), 4, temperature=0.0).tolist() == [2, 0, 2, 0], "the most likely"


def sampled_by_hand(model: nn.Sequential, tokens: list[int], length: int, context: int) -> list[int]:
    """The most likely tokens, each from the last `context` before it."""
    for _ in range(length):
        tokens = [*tokens, int(model(torch.tensor([tokens[-context:]]))[0, -1].argmax())]
    return tokens[-length:]


def test_it_goes_on_beyond_the_context_with_the_last_tokens() -> None:
    torch.manual_seed(0)
    model = gpt(1, 8, 2, 3, 7)
    for p in model.parameters():
        if p.ndim > 1:
            nn.init.normal_(p)
    found = sample(model, torch.tensor([1, 2, 3, 4]), 12, temperature=0.0).tolist()
    assert found == sampled_by_hand(model, [1, 2, 3, 4], 12, 3)
    assert len(set(found)) > 1, "a model that says one thing shows nothing"


def test_a_seed_gives_the_same_tokens_and_the_global_random_numbers_stay() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*gpt(1, 8, 2, 3, 7), nn.Dropout(0.5))
    model[1].eval()
    state = torch.get_rng_state()
    prompt = torch.tensor([1])
    first = sample(model, prompt, 30, seed=3)
    assert torch.equal(first, sample(model, prompt, 30, seed=3))
    assert not torch.equal(first, sample(model, prompt, 30, seed=4))
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model] == [True, False, True, True, True]


def test_what_cannot_be_made_read_or_drawn_is_refused() -> None:
    model, prompt = gpt(1, 8, 2, 3, 7), torch.tensor([0])
    for call in (
        lambda: gpt(1, 10, 3, 4, 5),
        lambda: model(torch.zeros(2, 6).long()),
        *(partial(sample, model, wrong, 2) for wrong in (prompt[:0], torch.zeros(3), prompt[None], prompt + 7)),
        lambda: sample(mlp(4, (3,), 2), prompt, 2),
        lambda: sample(model, prompt, -1),
        lambda: sample(model, prompt, 1, temperature=-1.0),
    ):
        with pytest.raises(ValueError):
            call()


SIZES: dict[Callable[..., nn.Module], dict[str, int]] = {
    residual_mlp: {"width": 3, "depth": 2, "inputs": 3, "outputs": 3},
    resnet18: {"width": 3, "classes": 3, "channels": 3},
    gpt: {"layers": 1, "width": 4, "heads": 2, "context": 3, "vocabulary": 5},
}


@pytest.mark.parametrize("make, option", [(make, option) for make, sizes in SIZES.items() for option in sizes])
def test_a_size_that_is_none_is_refused_by_name(make: Callable[..., nn.Module], option: str) -> None:
    for wrong in (0, 2.5, -1):
        with pytest.raises(ValueError, match=f"{option} of {make.__name__}"):
            make(**{**SIZES[make], option: wrong})
