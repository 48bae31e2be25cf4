"""Settings in words: the same for the same settings in any process, another for others."""

import functools
import hashlib

import torch
from torch import nn

from altmin.common.describe import describe, digest, kind


def one(o, y):
    return o.sum()


class Plain:
    def __init__(self, rate: float):
        self.rate, self.function, self.weights, self._hidden = rate, one, torch.zeros(3), 5


class Weighted(nn.Module):
    def __init__(self, scale: float):
        super().__init__()
        self.scale, self.inner = scale, nn.HuberLoss(delta=scale)
        self.register_buffer("weight", torch.full((2,), scale))


def test_functions_and_classes_are_their_qualified_names() -> None:
    assert describe(one) == f"{__name__}.one"
    assert describe(torch.optim.SGD) == "torch.optim.sgd.SGD"
    assert describe(functools.partial(one, 3, y="a")) == f"{__name__}.one(3, y='a')"


def test_an_object_without_a_text_of_its_own_is_its_class_and_plain_attributes() -> None:
    assert describe(Plain(0.5)) == f"Plain(function={__name__}.one, rate=0.5)"


def test_a_module_is_its_class_options_buffers_and_parts() -> None:
    assert describe(nn.HuberLoss(delta=2.0)) == "HuberLoss(delta=2.0, reduction='mean')"
    a, b = describe(Weighted(1.0)), describe(Weighted(2.0))
    assert a.startswith("Weighted(inner=HuberLoss(delta=1.0, reduction='mean'), scale=1.0, weight=float32 2 ")
    assert a != b
    assert describe(nn.CrossEntropyLoss(torch.tensor([1.0, 2.0]))) != describe(
        nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]))
    )


def test_addresses_and_line_breaks_are_left_out() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "Odd\n  at 0x7f00 of 3"

    assert describe(Odd()) == "Odd of 3"


def test_a_digest_depends_on_every_byte_and_not_on_how_a_tensor_lies() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert digest(x) == digest(x.t().contiguous().t())
    for i in range(6):
        y = x.clone()
        y.view(-1)[i] += 1e-3
        assert digest(y) != digest(x)
    assert digest(torch.tensor([1, 2], dtype=torch.int16)) == digest("\1\0\2\0")
    assert digest("a", "b", size=16) == hashlib.blake2b(b"ab", digest_size=16).hexdigest()
    assert kind(x) == "float32 2x3"
    assert kind(torch.tensor(1)) == "int64"
