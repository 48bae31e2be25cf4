"""Random networks with several inputs, masks, tied weights and several outputs: autograd's gradients at share 0."""

import random
from typing import Any

import pytest
import torch
from graph_cases import F64, as_backprop
from torch import Tensor, nn
from torch.nn import functional as F

import altmin

WIDTH, ROWS, NETS, TOGETHER = 3, 5, 200, 50


class Random(nn.Module):
    """Values made one after the other by operations drawn at random, each of earlier ones. A layer may be used several
    times. Values that nobody uses are summed, or returned as the form says."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(draw.randint(1, 4)))
        self.wide, self.norm = nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.inputs = draw.choice([1, 2, 2, 3, 3])
        names = ["layer"] * 4 + ["tanh", "relu", "add", "norm", "cat"]
        names += ["z", "z"] * (self.inputs > 1) + ["mask", "mask", "where"] * (self.inputs > 2)
        count = draw.randint(2, 9)
        self.steps = [(draw.choice(names), draw.randrange(20), draw.randrange(20)) for _ in range(count)]
        self.form = draw.choice(["sum", "sum", "tuple", "dict"])

    def forward(self, x: Tensor, z: Tensor | None = None, mask: Tensor | None = None) -> Any:
        values, used = [x], set[int]()
        for name, i, j in self.steps:
            i, k = len(values) - 1 - i % min(3, len(values)), j % len(values)
            a, b = values[i], values[k]
            used |= {i, k} if name in ("add", "cat") else {i}
            if name == "layer":
                made = self.layers[j % len(self.layers)](a)
            elif name == "cat":
                made = self.wide(torch.cat([a, b], 1))
            elif name == "z":
                assert z is not None
                made = torch.tanh(a * z) if j % 2 else a + z
            elif name in ("mask", "where"):
                assert mask is not None
                made = a * mask if name == "mask" else torch.where(mask, a, -a)
            else:
                ops = {"tanh": torch.tanh, "relu": F.relu, "norm": self.norm}
                made = a + b if name == "add" else ops[name](a)
            values.append(made)
        loose = [value for i, value in enumerate(values) if i and i not in used]
        last = self.layers[0](loose[-1])
        if self.form == "tuple":
            return last, [last.mean(1), None]
        if self.form == "dict":
            return {"last": last, "sum": sum(loose)}
        return last + sum(loose)


def loss(output: Any, y: Tensor) -> Tensor:
    if isinstance(output, Tensor):
        return F.cross_entropy(output, y)
    if isinstance(output, dict):
        return F.cross_entropy(output["last"], y) + output["sum"].square().mean()
    return F.cross_entropy(output[0], y) + output[1][0].square().mean()


def agrees(seed: int) -> altmin.AltMin:
    torch.manual_seed(seed)
    model = Random(seed).double()
    tensors = (torch.randn(ROWS, WIDTH, dtype=F64), torch.randn(ROWS, WIDTH, dtype=F64), torch.rand(ROWS, WIDTH) > 0.4)
    y, names = torch.randint(WIDTH, (ROWS,)), ["x", "z", "mask"][: model.inputs]
    try:
        return as_backprop(model, tensors[: model.inputs], y, loss, atol=1e-7, check=False, inputs=names)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("first", range(0, NETS, TOGETHER))
def test_codes_that_stay_give_autograds_gradients(first: int) -> None:
    trained = [agrees(seed) for seed in range(first, first + TOGETHER)]
    assert any(am.chain.tied for am in trained), "some have tied weights"
    assert any(len(am.chain.inputs) == 3 and len(am.chain) > 2 for am in trained), "some masks pass several blocks"
    assert any(am.chain.outputs is not None for am in trained), "some have several outputs"
