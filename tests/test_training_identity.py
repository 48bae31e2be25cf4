"""What tells one run from another: every option of a method, its model, precision and data."""

from typing import Any

import method_cases
import pytest
import torch
from torch import nn

import altmin
from altmin import methods
from altmin.runners.precision import using
from altmin.training.resumed import method_settings, parameters
from altmin.training.samples import fingerprint


def net(width: int = 8, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3)).to(dtype)


def differing(a: Any, b: Any) -> set[str]:
    first, second = method_settings(a), method_settings(b)
    return {name for name in first | second if first.get(name) != second.get(name)}


@pytest.mark.parametrize(
    "options, name",
    [
        ({"codes": 0.1}, "codes"),
        ({"share": 0.2}, "codes"),
        ({"order": "weights-first"}, "codes"),
        ({"codes": "straight-through"}, "codes"),
        ({"penalty": 3.0}, "penalty"),
        ({"penalty": altmin.Penalty(growth=2.0)}, "penalty"),
        ({"loss": nn.MSELoss()}, "loss"),
        ({"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}, "loss"),
        ({"loss": nn.functional.cross_entropy}, "loss"),
        ({"l1": 1e-4}, "weights"),
        ({"steps": 3}, "weights"),
    ],
)
def test_every_option_of_a_method_counts(options: dict[str, Any], name: str) -> None:
    a, b = methods.create("am-adam", net()), methods.create("am-adam", net(), **options)
    assert differing(a, b) == {name}
    assert not differing(a, methods.create("am-adam", net()))


def test_a_method_in_training_is_the_method_it_was() -> None:
    for name in filter(method_cases.available, methods.names()):
        method = methods.create(name, method_cases.net(name, 6, 8, 3))
        before = method_settings(method)
        method.step(torch.randn(9, 6), torch.arange(9) % 3)
        method.end_epoch()
        assert method_settings(method) == before


def test_kind_and_model_and_precision_count() -> None:
    a = methods.create("am-adam", net())
    assert differing(a, methods.create("am-adam-offline", net(), lr=1e-3)) == {"method"}
    assert differing(a, methods.create("am-adam", net(9))) == {"model", "layers"}
    assert differing(a, methods.create("am-adam", net(dtype=torch.float64))) == {"model"}
    other = net()
    other[1] = nn.Tanh()
    assert differing(a, methods.create("am-adam", other)) == {"layers"}
    assert differing(methods.create("adam", net()), methods.create("adam", net(), loss=nn.MSELoss())) == {"loss"}
    plain = method_settings(a)
    with using("bf16") as context:
        rounded = method_settings(a, context)
    assert {name for name, value in rounded.items() if value != plain[name]} == {"precision of products"}


def test_a_frozen_parameter_is_told_from_a_trained_one() -> None:
    model = net()
    model[0].bias.requires_grad_(False)
    assert parameters(model).startswith("0.weight 8x6 float32, 0.bias 8 float32 frozen, 2.weight 3x8 float32")


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000])
def test_a_fingerprint_sees_the_first_and_the_last_sample_and_every_one_of_few(n: int) -> None:
    x, y = torch.randn(n, 3), torch.arange(n)
    expected = fingerprint((x, y))
    assert expected.startswith(f"{n} samples, float32 3 and int64, digest ")
    for i in {0, n - 1} if n > 64 else set(range(n)):
        for part in range(2):
            changed = [x.clone(), y.clone()]
            changed[part][i] += 1
            assert fingerprint((changed[0], changed[1])) != expected
    assert fingerprint((x.double(), y)) != expected
