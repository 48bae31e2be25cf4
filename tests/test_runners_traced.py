"""A captured step as torch compiles it: traced as a whole, with the numbers of the ordinary step."""

import copy
import shutil

import pytest
import torch
from capture_cases import NETS, batches, both, mlp, same
from torch import nn

import altmin


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_compiled_chains_of_operations_give_the_same_numbers():
    torch.manual_seed(0)
    ordinary, step = both(mlp(6, 6, 6), data=list(batches(3)), fuse=True)
    assert step.am.penalty.value == ordinary.penalty.value


@pytest.mark.parametrize(
    "net, rule", [("mixed", "adam"), ("no biases", "adam"), ("two layers", "memory"), ("mixed", "solved memory")]
)
def test_torch_can_trace_a_step_as_a_whole(net, rule, traced):
    """Or a capture would quietly not be compiled. Of the solved memory's first steps the third and fifth are."""
    _, step = both(NETS[net](), rule, data=list(batches(6)), fuse=True)
    assert step.fuse
    assert step.compiled is not None


@pytest.mark.parametrize(
    "model",
    [
        lambda: altmin.models.elman(5, length=6, inputs=2, outputs=3),
        lambda: altmin.models.gru(5, inputs=2, outputs=3, layers=2),
        lambda: altmin.models.lstm(5, inputs=2, outputs=3, bidirectional=True),
        lambda: altmin.models.min_gru(5, inputs=2, outputs=3),
    ],
    ids=["elman", "gru", "lstm", "mingru"],
)
def test_torch_can_trace_a_step_of_recurrent_layers_as_a_whole(model, traced):
    torch.manual_seed(0)
    data = [(torch.randn(4, 6, 2, dtype=torch.float64), torch.randint(3, (4,))) for _ in range(3)]
    _, step = both(model().double(), data=data, fuse=True)
    assert step.fuse


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_traced_step_of_images_writes_statistics_once_and_not_if_it_is_refused(channels_last, traced, monkeypatch):
    monkeypatch.setattr("altmin.runners.capture._gains_by_channels_last", lambda model, context: channels_last)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.AdaptiveAvgPool2d(1)
    )
    net = nn.Sequential(*net, nn.Flatten(), nn.Linear(3, 3)).double()
    _, step = both(net, data=list(batches(4, (2, 6, 6))), fuse=True)
    assert step.fuse
    assert step.compiled is not None
    before = copy.deepcopy(step.am.model)
    x, y = next(batches(1, (2, 6, 6), seed=1))
    step.run(x * torch.nan, y)
    same(step.am.model, before, 0.0)
    assert step.pull() == 0


def test_steps_of_many_trainers_in_one_process_are_compiled(traced):
    """Torch compiles one function at most eight times."""
    for _ in range(10):
        _, step = both(mlp(4), data=list(batches(3)), fuse=True)
        assert step.fuse


@pytest.mark.parametrize("works", [True, False], ids=["compiled", "torch cannot compile it"])
def test_a_step_is_compiled_once_as_a_whole_or_not_at_all(monkeypatch, works):
    from torch._dynamo.exc import TorchDynamoException

    made, calls = [], []

    def compiler(function, **options):
        def call(*args):
            calls.append(args)
            if not works:
                raise TorchDynamoException("not this one")
            return function(*args)

        made.append(options)
        return call

    monkeypatch.setattr("torch.compile", compiler)
    both(NETS["a run"](), data=list(batches(4)), fuse=True)
    assert made == [{"fullgraph": True, "dynamic": False}]
    assert len(calls) == (4 if works else 1)
    monkeypatch.setattr("altmin.runners.capture.WHOLE", 5)
    both(NETS["a run"](), data=list(batches(2)), fuse=True)
    assert len(made) == 1, "six blocks are too many then"
