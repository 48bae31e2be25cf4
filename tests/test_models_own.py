"""Models of one's own, by module:function."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from altmin import models

MODULE = """
import torch
from torch import nn

def build(sample_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(sample_shape[0] * sample_shape[1], 5), nn.BatchNorm1d(5),
                         nn.Dropout(0.5), nn.Linear(5, classes))

def tokens(sample_shape, classes):
    return nn.Embedding(classes, classes)

def lazy(sample_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))

def one_more(sample_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes + 1))

def two(sample_shape, classes):
    class Two(nn.Module):
        def forward(self, x):
            return x, x
    return Two()

def other_inputs(sample_shape, classes):
    return nn.Linear(99, classes)

def nothing():
    return nn.Linear(6, 4)

def one_more_argument(sample_shape, classes, width):
    return nn.Linear(6, 4)

def number(sample_shape, classes):
    return 3

def failing(sample_shape, classes):
    raise KeyError("mine")

constant = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_nets.py").write_text(MODULE)
    (tmp_path / "needy.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_nets"
    sys.modules.pop("my_nets", None)


def test_a_function_makes_the_model_for_the_shape_and_the_classes(module: str) -> None:
    torch.manual_seed(0)
    model = models.create(f"{module}:build", (2, 3), 4)
    assert isinstance(model, nn.Sequential)
    assert [tuple(p.shape) for p in model.parameters() if p.ndim == 2] == [(5, 6), (4, 5)]
    assert all(each.training for each in model.modules()), "looking at it changes nothing"
    assert int(model[2].num_batches_tracked) == 0
    torch.manual_seed(0)
    again = models.create(f"{module}:build", (2, 3), 4)
    after = torch.rand(1)
    torch.testing.assert_close(again.state_dict(), model.state_dict(), atol=0, rtol=0)
    torch.manual_seed(0)
    sys.modules[module].build((2, 3), 4)
    assert torch.rand(1) == after, "looking at it draws nothing"


def test_models_of_tokens_and_lazy_ones_serve(module: str) -> None:
    assert models.create(f"{module}:tokens", (7,), 4, tokens=True)(torch.zeros(2, 7).long()).shape == (2, 7, 4)
    assert models.create(f"{module}:lazy", (2, 3), 4)(torch.zeros(2, 2, 3)).shape == (2, 4)


WRONG = {
    "ValueError": ["my_net:build", "my_nets.sub:build", ":build", ".my_nets:build", "my_nets:bild"],
    "my_nets:nothing takes ()": ["my_nets:nothing"],
    "takes (sample_shape, classes, width)": ["my_nets:one_more_argument"],
    "my_nets:": ["my_nets:constant", "my_nets:number"],
    "samples": ["my_nets:one_more", "my_nets:two", "my_nets:other_inputs"],
    "mine": ["my_nets:failing"],
    "no_such_library": ["needy:build"],
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_no_such_function_is_named(words: str, module: str) -> None:
    for name in WRONG[words]:
        with pytest.raises((ValueError, TypeError, KeyError, ModuleNotFoundError)) as error:
            models.create(name, (2, 3), 4)
        assert words in f"{error.type.__name__}: {error.value}"
