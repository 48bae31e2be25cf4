"""Every learner by its name, and the bytes that it keeps, counted by hand."""

import pytest
import torch
from torch import nn

import altmin
from altmin import methods
from altmin.continual import learners


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return altmin.models.mlp(5, (4,), 3)


WEIGHTS = 4 * (5 * 4 + 4 + 4 * 3 + 3)
LAST = 4 * (4 * 3 + 3)
HAND_COUNTED = {
    "sgd": (WEIGHTS, 0),  # momentum, one a weight
    "adam": (2 * WEIGHTS, 0),
    "am-adam": (2 * WEIGHTS, 0),
    "am-mem": (2 * LAST, 4 * (6 * 6 + 4 * 6)),  # A and R of the hidden block, a 1 appended to its input
    "ewc": (2 * WEIGHTS, 2 * WEIGHTS),  # importance and anchor
    "replay": (2 * WEIGHTS, 16 * 6),  # 100 bytes hold 16 samples of 5 values and a label
    "slda": (0, 4 * (4 * 4 + 3 * 4 + 3)),  # scatter, means, counts
    "falling-sgd": (0, 0),
}


@pytest.mark.parametrize("name", HAND_COUNTED)
def test_moments_and_memory_have_as_many_bytes_as_counted_by_hand(name: str) -> None:
    learner = learners.create(name, net(), **({"budget": 100} if name == "replay" else {}))
    x, y = torch.randn(6, 5), torch.arange(6) % 3
    learner.step(x, y)
    learner.end_epoch()
    learner.end_task((x, y))
    moments, memory = HAND_COUNTED[name]
    assert learners.sizes(learner) == {"weights": WEIGHTS, "moments": moments, "memory": memory}


def test_the_default_buffer_takes_as_much_as_the_memory_of_the_papers_small_net() -> None:
    x, y = torch.rand(4, 1, 28, 28), torch.arange(4)
    memory = {}
    for name in ("am-mem", "replay"):
        learner = learners.create(name, altmin.models.mlp(784, (100, 100), 10))
        learner.step(x, y)
        memory[name] = learners.sizes(learner)["memory"]
    assert 0 <= memory["am-mem"] - memory["replay"] < 785


def test_all_methods_are_learners_too() -> None:
    assert set(methods.names()) < set(learners.names())
    assert set(learners.names()) - set(methods.names()) == {"ewc", "falling-sgd", "replay", "slda"}


def test_options_reach_the_learner() -> None:
    assert learners.create("ewc", net(), strength=7.0).strength == 7.0
    assert learners.create("am-mem", net(), forget=1.0).method.weights.forget == 1.0


def test_unknown_names_and_options_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"unknown learner 'repaly'; did you mean 'replay'\?"):
        learners.create("repaly", net())
    with pytest.raises(ValueError, match=r"unknown option of learner 'ewc', 'strenght'; did you mean 'strength'\?"):
        learners.create("ewc", net(), strenght=1.0)
    with pytest.raises(ValueError, match="unknown option of method 'adam', 'strength'"):
        learners.create("adam", net(), strength=1.0)
