"""A run over a sequence of tasks as a curve of a figure."""

import json

import pytest
import torch
from torch import nn

import altmin
from altmin import continual
from altmin.training.samples import Samples
from reproduction.continual import Stream, sizes


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return altmin.models.mlp(5, (4,), 3)


WEIGHTS = 4 * (5 * 4 + 4 + 4 * 3 + 3)

LAST = 4 * (4 * 3 + 3)

HAND_COUNTED = {
    "sgd": (WEIGHTS, 0),  # momentum, one a weight
    "adam": (2 * WEIGHTS, 0),
    "am-adam": (2 * WEIGHTS, 0),
    "am-mem": (
        2 * WEIGHTS,
        4 * (2 * (5 * 5 + 4 * 4) + 2 + 2 * (4 * 4 + 3 * 3)),
    ),  # Y, B, a scale, K and P of each block
    "am-mem-fitted": (2 * LAST, 4 * (6 * 6 + 4 * 6)),  # A and R of the hidden block, a 1 appended to its input
    "ewc": (2 * WEIGHTS, 2 * WEIGHTS),  # importance and anchor
    "replay": (2 * WEIGHTS, 16 * 6),  # 100 bytes hold 16 samples of 5 values and a label
    "slda": (0, 4 * (4 * 4 + 3 * 4 + 3)),  # scatter, means, counts
    "falling-sgd": (0, 0),
    "ridge": (0, 4 * (5 * 6 // 2 + 3 * 5)),  # a triangle of A, and B, a 1 appended to four features
    "analytic": (0, 4 * (5 * 6 // 2 + 3 * 5)),
}


@pytest.mark.parametrize("name", HAND_COUNTED)
def test_moments_and_memory_have_as_many_bytes_as_counted_by_hand(name: str) -> None:
    learner = continual.create(name, net(), **({"budget": 100} if name == "replay" else {}))
    x, y = torch.randn(6, 5), torch.arange(6) % 3
    learner.step(x, y)
    learner.end_epoch()
    learner.end_task((x, y))
    moments, memory = HAND_COUNTED[name]
    assert sizes(learner) == {"weights": WEIGHTS, "moments": moments, "memory": memory}


class Small:
    """Ten classes of images, each with a bright spot of its own; notes what it was asked for."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int | None]] = []

    def samples(self, name: str, part: str, limit: int | None = None) -> Samples:
        self.asked.append((name, part, limit))
        generator = torch.Generator().manual_seed(len(part))
        y = torch.arange(200) % 10
        x = torch.randn(200, 784, generator=generator) / 4
        x[torch.arange(200), 70 * y] += 4
        return x.reshape(-1, 1, 28, 28)[:limit], y[:limit]


def test_a_stream_makes_a_row_for_each_seed_and_draws_the_average_so_far() -> None:
    stream, setting, ticks = Stream("slda", "split", model="linear", batch_size=20, limit=150), Small(), []
    rows = stream.make([0, 3], setting, lambda *given: ticks.append(given))
    assert setting.asked == [("mnist", "train", 150), ("mnist", "test", None)]
    assert [row["seed"] for row in rows] == [0, 3]
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        a = row["accuracies"]
        assert [len(r) for r in a] == [1, 2, 3, 4, 5]
        assert row["average_accuracy"] == sum(a[4]) / 5 > 0.9
        assert row["forgetting"] == continual.forgetting(a)
        assert row["rows"] == 150
        assert row["bytes"]["memory"] == 4 * (784 * 784 + 10 * 784 + 10)
        assert stream.points(row, "tasks") == [(k + 1.0, sum(a[k]) / (k + 1)) for k in range(5)]
    assert [done for done, *_ in ticks] == list(range(1, 11))
    assert {total for _, total, _ in ticks} == {10}
