"""Outputs with a label for each sample or place: where their classes are, and torch's loss over all places."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from altmin.core.labels import CrossEntropyLoss, by_label, class_axis

SHAPES = {
    "samples": ((7, 4), (7,), 1),
    "sequences": ((7, 5, 4), (7, 5), 2),
    "sequences as torch has them": ((7, 4, 5), (7, 5), 1),
    "images": ((7, 4, 3, 5), (7, 3, 5), 1),
    "images with classes last": ((7, 3, 5, 4), (7, 3, 5), 3),
}


@pytest.mark.parametrize("name", SHAPES)
def test_labels_tell_which_dimension_counts_the_classes(name: str) -> None:
    output, labels, axis = SHAPES[name]
    assert class_axis(torch.zeros(output), torch.zeros(labels)) == axis
    assert class_axis(torch.zeros(output), torch.zeros(3, *labels[1:])) == axis, "samples are not compared"


@pytest.mark.parametrize("output, labels", [((3, 4, 5), (3,)), ((3, 4, 4), (3, 4)), ((3,), (3,))])
def test_labels_that_fit_no_dimension_or_two_are_refused(output: tuple, labels: tuple) -> None:
    with pytest.raises(ValueError):
        class_axis(torch.zeros(output), torch.zeros(labels))


@pytest.mark.parametrize("name", SHAPES)
def test_torchs_cross_entropy_is_the_mean_over_all_places(name: str) -> None:
    shape, labels, axis = SHAPES[name]
    torch.manual_seed(0)
    o, y, weight = torch.randn(shape).double(), torch.randint(4, labels), torch.rand(4).double()
    y.view(-1)[1] = 2
    theirs = nn.CrossEntropyLoss(weight, ignore_index=2, label_smoothing=0.1)
    expected = F.cross_entropy(o.movedim(axis, -1).reshape(-1, 4), y.view(-1), weight, None, 2, label_smoothing=0.1)
    assert type(by_label(theirs)) is CrossEntropyLoss
    torch.testing.assert_close(by_label(theirs)(o, y), expected)


def test_probabilities_and_other_losses_are_left_to_torch() -> None:
    o = torch.randn(6, 4)
    y = torch.rand(6, 4).softmax(1)
    assert torch.equal(by_label(nn.CrossEntropyLoss())(o, y), F.cross_entropy(o, y))
    for loss in (nn.MSELoss(), F.cross_entropy):
        assert by_label(loss) is loss
