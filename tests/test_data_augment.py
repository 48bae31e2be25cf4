"""Crops and flips: every place of the crop and both directions equally likely, the same from the same numbers."""

from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from altmin.data import AUGMENTATIONS, CropFlip, RandomWindows, crop_flip, windows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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


def test_every_image_becomes_one_of_its_own_crops_each_as_often_as_any_other() -> None:
    """162 of them; a count of 200 expected has a standard deviation of 14."""
    images = torch.rand(2, 3, 6, 10, generator=generator(1)) + 1
    for image in images:
        crops = every_crop(image, 4)
        assert len({crop.numpy().tobytes() for crop in crops.values()}) == 162, "the test tells all of them apart"
        by_content = {crop.contiguous().numpy().tobytes(): place for place, crop in crops.items()}
        found = crop_flip(image.expand(162 * 200, -1, -1, -1), generator())
        counts = Counter(by_content[each.numpy().tobytes()] for each in found)
        assert set(counts) == set(crops)
        assert all(abs(count - 200) < 5 * 200**0.5 for count in counts.values())
        chi_squared = sum((count - 200) ** 2 / 200 for count in counts.values())
        assert abs(chi_squared - 161) < 4 * (2 * 161) ** 0.5


def test_images_stay_in_their_order_so_labels_need_not_change() -> None:
    """Image i is filled with i + 1, and so is what is left of it."""
    x = torch.arange(1.0, 51.0).view(50, 1, 1, 1).expand(50, 2, 9, 9)
    found = crop_flip(x, generator())
    for i, image in enumerate(found):
        assert set(image.unique().tolist()) <= {0.0, i + 1.0}
        assert image[:, 4, 4].tolist() == [i + 1.0] * 2


def test_the_same_numbers_give_the_same_crops_and_the_samples_stay_as_they_are() -> None:
    x = torch.randn(20, 3, 8, 8, generator=generator(1))
    before, state = x.clone(), torch.get_rng_state()
    first = crop_flip(x, generator(5))
    assert torch.equal(first, crop_flip(x, generator(5)))
    assert not torch.equal(first, crop_flip(x, generator(6)))
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_border_images_are_mirrored_only() -> None:
    x = torch.randn(40, 1, 3, 5, generator=generator(1))
    found = crop_flip(x, generator(), pad=0)
    mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(found, x, strict=True)]
    assert 5 < sum(mirrored) < 35
    assert all(m or torch.equal(a, b) for m, a, b in zip(mirrored, found, x, strict=True))


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(samples, channels, height, width\), given \(3, 28\)"):
        crop_flip(torch.zeros(3, 28), generator())


def test_what_is_drawn_says_which_crop_it_is() -> None:
    """The corner's row and column and whether it is mirrored are the digits of the number, to the bases 9, 9 and 2."""
    image = torch.rand(1, 3, 6, 10, generator=generator(1)) + 1
    labels = torch.arange(162)
    found, kept = CropFlip().apply(image.expand(162, -1, -1, -1), labels, torch.arange(162))
    assert kept is labels
    for (top, left, mirrored), crop in every_crop(image[0], 4).items():
        assert torch.equal(found[2 * (9 * top + left) + mirrored], crop)


def test_they_are_known_by_their_names() -> None:
    x, y = windows(torch.arange(9), 4)
    found = {name: make(x, y) for name, make in AUGMENTATIONS.items()}
    assert found["crop-flip"] == CropFlip(4)
    assert isinstance(found["random-windows"], RandomWindows)
