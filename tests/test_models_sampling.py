"""Tokens are drawn from the model's own distribution, by a seed, from as much of the past as the model reads."""

import pytest
import torch
from torch import Tensor, nn

from altmin.models import gpt, mlp, sample


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


def test_a_token_is_drawn_with_its_probability() -> None:
    model = successor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    drawn = torch.cat([sample(model, torch.tensor([0]), 1, seed=seed) for seed in range(2000)])
    for token, probability in enumerate((0.1, 0.2, 0.7)):
        slack = 4 * (probability * (1 - probability) / 2000) ** 0.5
        assert (drawn == token).double().mean().item() == pytest.approx(probability, abs=slack)


def test_a_temperature_divides_the_logarithms_and_zero_takes_the_most_likely() -> None:
    model = successor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    assert sample(model, torch.tensor([1]), 4, temperature=0.0).tolist() == [2, 0, 2, 0]
    drawn = torch.cat([sample(model, torch.tensor([0]), 1, 0.5, seed) for seed in range(2000)])
    share = 0.7**2 / (0.1**2 + 0.2**2 + 0.7**2)
    assert (drawn == 2).double().mean().item() == pytest.approx(share, abs=4 * (share * (1 - share) / 2000) ** 0.5)


def by_hand(model: nn.Sequential, tokens: list[int], length: int, context: int) -> list[int]:
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
    assert found == by_hand(model, [1, 2, 3, 4], 12, 3)
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


@pytest.mark.parametrize(
    "prompt, words",
    [
        (torch.zeros(0).long(), r"at least one int64 token, given torch.int64 of shape \(0,\)"),
        (torch.zeros(3), "at least one int64 token, given torch.float32"),
        (torch.zeros(1, 3).long(), r"at least one int64 token, .* \(1, 3\)"),
        (torch.tensor([0, 7]), "tokens go from 0 to 6, the prompt's from 0 to 7"),
    ],
)
def test_a_prompt_that_is_none_is_refused(prompt: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sample(gpt(1, 8, 2, 3, 7), prompt, 2)


def test_other_models_and_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tokens are drawn from an altmin\.models\.gpt, given another model"):
        sample(mlp(4, (3,), 2), torch.tensor([0]), 2)
    with pytest.raises(ValueError, match="length of sample"):
        sample(gpt(1, 8, 2, 3, 7), torch.tensor([0]), -1)
    with pytest.raises(ValueError, match="temperature of sample"):
        sample(gpt(1, 8, 2, 3, 7), torch.tensor([0]), 1, temperature=-1.0)
