"""Random windows: contiguous pieces of the text with the tokens that follow, all beginnings alike, by the seed."""

from typing import Any

import pytest
import torch
from torch import Tensor

import altmin.data
from altmin.data import RandomWindows, windows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(change: RandomWindows, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.zeros(samples, change.context, dtype=torch.int64)
    return change.apply(x, x, change.draw(samples, generator(seed)))


def test_every_window_is_a_piece_of_the_text_and_its_targets_are_the_characters_after_it() -> None:
    plays = altmin.data.dataset("shakespeare")
    x, y = (t[:200] for t in altmin.data.load("shakespeare", "train"))
    text = plays.decode(torch.cat([x.flatten(), y[-1, -1:]]))
    for inputs, targets in zip(*batch(RandomWindows(x, y), 50), strict=True):
        assert plays.decode(inputs) + plays.decode(targets[-1:]) in text
        assert torch.equal(inputs[1:], targets[:-1])


def test_all_beginnings_are_equally_likely() -> None:
    """Tokens are their own places, so the first of a window is where it begins. 17 tokens, windows of 4: 13 places; a
    count of 1,000 expected has a standard deviation of 30."""
    x, y = batch(RandomWindows(*windows(torch.arange(17), 4)), 13_000)
    assert torch.equal(x, x[:, :1] + torch.arange(4))
    assert torch.equal(y, x + 1)
    counts = torch.bincount(x[:, 0])
    assert len(counts) == 13
    assert (counts - 1000).abs().max() < 150
    assert abs(float((counts - 1000).square().sum() / 1000) - 12) < 4 * 24**0.5, (
        "chi-squared with 12 degrees of freedom"
    )


def test_the_same_seed_gives_the_same_windows_and_nothing_else_is_drawn_or_changed() -> None:
    samples = windows(torch.arange(101), 10)
    change, state = RandomWindows(*samples), torch.get_rng_state()
    first, again, other = (batch(change, 20, seed) for seed in (5, 5, 6))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(torch.get_rng_state(), state)
    first[0].zero_()
    assert torch.equal(batch(change, 20, 5)[0], again[0]), "what is handed out is not the text itself"


def test_one_window_is_its_own_only_choice() -> None:
    samples = windows(torch.arange(5), 4)
    x, y = batch(RandomWindows(*samples), 3)
    assert x.tolist() == [[0, 1, 2, 3]] * 3
    assert y.tolist() == [[1, 2, 3, 4]] * 3


TEXT = windows(torch.arange(21), 4)


@pytest.mark.parametrize(
    "x, y, words",
    [
        (TEXT[0].flip(0), TEXT[1].flip(0), "each window must begin where the last one ends"),
        (TEXT[0], TEXT[0], "each target be the next token"),
        (TEXT[0], TEXT[1][:, 0], r"given torch.int64 of \(5, 4\) and torch.int64 of \(5,\)"),
        (TEXT[0].float(), TEXT[1], r"both int64 .* given torch.float32 of \(5, 4\)"),
    ],
)
def test_what_is_no_text_is_refused(x: Any, y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RandomWindows(x, y)
