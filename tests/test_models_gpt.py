"""The transformer computes its formula, sees nothing of later tokens, and is trained by alternating minimization."""

import math

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin.models import gpt


def normed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def gelu(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def by_hand(model: nn.Sequential, tokens: list[int], heads: int) -> Tensor:
    """The outputs for one sequence, place by place and head by head."""
    embedding, *layers, head = model
    h = [embedding.token.weight[token] + embedding.position.weight[t] for t, token in enumerate(tokens)]
    for attention, perceptron in zip(layers[::2], layers[1::2], strict=True):
        qkv = [attention.attend(normed(each, attention.norm)).chunk(3) for each in h]
        size, new = len(h[0]) // heads, []
        for t in range(len(h)):
            found = []
            for part in (slice(i * size, (i + 1) * size) for i in range(heads)):
                scores = torch.stack([qkv[t][0][part] @ qkv[s][1][part] for s in range(t + 1)]) / math.sqrt(size)
                found.append(sum(w * qkv[s][2][part] for s, w in enumerate(scores.exp() / scores.exp().sum())))
            new.append(h[t] + attention.project(torch.cat(found)))
        h = [x + perceptron.project(gelu(perceptron.expand(normed(x, perceptron.norm)))) for x in new]
    return torch.stack([head.linear.weight @ normed(x, head.norm) for x in h])


def test_it_is_its_formula() -> None:
    torch.manual_seed(0)
    model = gpt(2, 6, 3, 5, 4).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    tokens = torch.randint(4, (2, 5))
    expected = torch.stack([by_hand(model, row, 3) for row in tokens.tolist()])
    torch.testing.assert_close(model(tokens), expected)
    torch.testing.assert_close(model(tokens[:, :2]), expected[:, :2])


def test_an_output_does_not_depend_on_later_tokens_and_does_on_all_others() -> None:
    torch.manual_seed(0)
    model = gpt(2, 8, 2, 6, 5)
    tokens = torch.randint(5, (1, 6))
    outputs = model(tokens)
    for t in range(6):
        other = tokens.clone()
        other[0, t] = (tokens[0, t] + 1) % 5
        changed = (model(other) - outputs).abs().amax(2)[0] > 1e-7
        assert changed.tolist() == [s >= t for s in range(6)]


@pytest.mark.parametrize("layers, width, context, vocabulary", [(1, 8, 3, 4), (3, 12, 7, 11)])
def test_it_has_as_many_parameters_as_its_formula(layers: int, width: int, context: int, vocabulary: int) -> None:
    """12 width^2 + 13 width for a layer, its biases and norms; two tables, the last norm and the head."""
    expected = layers * (12 * width**2 + 13 * width) + (2 * vocabulary + context + 2) * width
    assert sum(p.numel() for p in gpt(layers, width, 2, context, vocabulary).parameters()) == expected


def test_weights_start_as_those_of_gpt_2() -> None:
    torch.manual_seed(0)
    for name, p in gpt(3, 128, 4, 64, 64).named_parameters():
        if "norm" in name or name.endswith("bias"):
            assert torch.equal(p, torch.full_like(p, float("norm.weight" in name))), name
        else:
            std = 0.02 / math.sqrt(6) if "project" in name else 0.02
            assert p.std().item() == pytest.approx(std, rel=3 / (2 * p.numel()) ** 0.5), name


def test_every_sub_layer_has_a_code() -> None:
    blocks = [str(block) for block in altmin.split(gpt(2, 8, 2, 4, 5))]
    assert blocks == ["TokenEmbedding", "Attention", "Perceptron", "Attention", "Perceptron", "Head"]


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


@pytest.mark.parametrize("option", ["layers", "width", "heads", "context", "vocabulary"])
def test_a_size_that_is_none_is_refused_by_name(option: str) -> None:
    for wrong in (0, 2.5, -1):
        with pytest.raises(ValueError, match=f"{option} of gpt"):
            gpt(**{"layers": 1, "width": 4, "heads": 2, "context": 3, "vocabulary": 5, option: wrong})


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="multiple of heads, given width 10 and 3 heads"):
        gpt(1, 10, 3, 4, 5)


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reads 4 tokens at most, given 6; cut the sequences, or .* context=6"):
        gpt(1, 4, 1, 4, 5)(torch.zeros(2, 6).long())
