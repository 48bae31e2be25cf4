"""What batches are made of: crops and flips of images, windows of a text; the text itself."""

import gzip
import hashlib

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import altmin.data
from altmin.data import CropFlip, RandomWindows, windows
from altmin.data.shakespeare import SHAKESPEARE


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    change = CropFlip()
    return change.apply(x, x, change.draw(len(x), generator))[0]


def every_crop(image: Tensor, pad: int) -> dict[tuple[int, int, bool], Tensor]:
    """All crops of one image (channels, height, width), by their corner and whether they are mirrored."""
    _, height, width = image.shape
    padded = F.pad(image, [pad] * 4)
    crops = {}
    for top in range(2 * pad + 1):
        for left in range(2 * pad + 1):
            crop = padded[:, top : top + height, left : left + width]
            crops[top, left, False], crops[top, left, True] = crop, crop.flip(2)
    return crops


def test_what_is_drawn_says_which_crop_it_is() -> None:
    """The corner's row and column and whether it is mirrored are the digits of the number, to the bases 9, 9 and 2."""
    image = torch.rand(1, 3, 6, 10, generator=generator(1)) + 1
    labels = torch.arange(162)
    found, kept = CropFlip().apply(image.expand(162, -1, -1, -1), labels, torch.arange(162))
    assert kept is labels
    for (top, left, mirrored), crop in every_crop(image[0], 4).items():
        assert torch.equal(found[2 * (9 * top + left) + mirrored], crop)


def batch(change: RandomWindows, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.zeros(samples, change.context, dtype=torch.int64)
    return change.apply(x, x, change.draw(samples, generator(seed)))


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


TEXT = windows(torch.arange(21), 4)


@pytest.mark.parametrize("change", ["order", "targets", "shape", "type"])
def test_what_is_no_text_is_refused(change: str) -> None:
    x, y = TEXT
    wrong = {"order": (x.flip(0), y.flip(0)), "targets": (x, x), "shape": (x, y[:, 0]), "type": (x.float(), y)}
    with pytest.raises(ValueError):
        RandomWindows(*wrong[change])


SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def whole() -> str:
    """The text as the package has it."""
    return gzip.decompress((SHAKESPEARE.embedded / "input.txt.gz").read_bytes()).decode("ascii")


def test_the_text_is_the_published_one_of_65_characters() -> None:
    text = whole()
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256
    assert SHAKESPEARE.alphabet == "".join(sorted(set(text)))
    assert len(SHAKESPEARE.alphabet) == SHAKESPEARE.classes == 65


def test_windows_of_all_parts_join_to_the_text() -> None:
    """Nine tenths, a twentieth and a twentieth, each but for less than a window and the last character's successor."""
    text, start = whole(), 0
    tokens = SHAKESPEARE.encode(text)
    for split, size in zip(("train", "validation", "test"), (1_003_854, 55_770, 55_770), strict=True):
        x, y = altmin.data.load("shakespeare", split)
        part = tokens[start : start + size]
        start += size
        assert x.dtype == y.dtype == torch.int64
        assert x.shape == y.shape == (SHAKESPEARE.splits[split], 64)
        assert torch.equal(part[: x.numel()], x.flatten())
        assert torch.equal(part[1 : 1 + y.numel()], y.flatten())
        assert size - 64 <= x.numel() < size
    assert start == len(text) == 1_115_394
    assert len(text) * 9 // 10 == 1_003_854


def test_each_target_is_the_token_after_and_what_is_left_over_is_left_out() -> None:
    x, y = windows(torch.arange(10), 4)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert len(windows(torch.arange(9), 4)[0]) == 2
    assert len(windows(torch.arange(8), 4)[0]) == 1, "the last token has no successor"
    with pytest.raises(ValueError, match="a window of 4 tokens and the one after it are more than the 4 given"):
        windows(torch.arange(4), 4)
    with pytest.raises(ValueError, match="context of windows"):
        windows(torch.arange(4), 0)


def test_a_text_is_its_tokens_and_back() -> None:
    line = "Speak, speak.\nAll: $3 & go?"
    tokens = SHAKESPEARE.encode(line)
    assert SHAKESPEARE.decode(tokens) == SHAKESPEARE.decode(tokens.tolist()) == line
    assert SHAKESPEARE.encode("\n !z").tolist() == [0, 1, 2, 64]
    with pytest.raises(ValueError, match="shakespeare has no character '7'"):
        SHAKESPEARE.encode("my 7")
