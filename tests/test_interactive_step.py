"""The step of the interactive page, docs/javascripts/network.js, is altmin's: both take it on the same net."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin

SCRIPT = Path(__file__).resolve().parent.parent / "docs/javascripts/network.js"
RUN = """
const AltMin = require(process.argv[1]);
const { net, x, y, share, order, start, lr, steps } = JSON.parse(require("fs").readFileSync(0));
const step = AltMin.adam(net), seen = [];
let mu = start;
for (let i = 0; i < steps; i++) {
  const { loss, blocks } = AltMin.moveCodes(net, x, y, { share, order, mu });
  const grads = blocks.map(({ grad }) => grad);
  seen.push({ loss, moves: blocks.slice(0, -1).map(({ code }) => AltMin.rms(code.move)) });
  step(grads, lr);
  mu = AltMin.grown(mu);
}
console.log(JSON.stringify({ net, seen }));
"""


def network(sizes: tuple[int, ...], seed: int) -> tuple[nn.Sequential, list[nn.Linear]]:
    torch.manual_seed(seed)
    layers = [nn.Linear(n, m, dtype=torch.float64) for n, m in itertools.pairwise(sizes)]
    modules = [module for layer in layers for module in (layer, nn.Tanh())][:-1]
    return nn.Sequential(*modules), layers


def in_javascript(layers: list[nn.Linear], x: Tensor, y: Tensor, **options: Any) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node to run JavaScript with; install Node.js 18 or newer")
    net = [{"W": layer.weight.tolist(), "b": layer.bias.tolist()} for layer in layers]
    given = json.dumps({"net": net, "x": x.tolist(), "y": y.tolist(), "start": 10.0, **options})
    done = subprocess.run(
        [node, "-e", RUN, str(SCRIPT)], input=given, capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("order", ["codes-first", "weights-first"])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_its_losses_moves_and_weights_are_those_of_altmin(share: float, order: str) -> None:
    model, layers = network((2, 8, 8, 2), seed=0)
    x = torch.randn(24, 2, dtype=torch.float64)
    y = (x.prod(1) > 0).long()
    found = in_javascript(layers, x, y, share=share, order=order, lr=0.05, steps=40)
    codes, weights = altmin.GradientCodes(share=share, order=order), altmin.LocalAdam(lr=0.05)
    am = altmin.AltMin(model, codes=codes, weights=weights)  # and the default penalty
    for seen in found["seen"]:
        metrics = am.step(x, y)
        assert seen["loss"] == pytest.approx(float(metrics.loss), rel=1e-9)
        assert seen["moves"] == pytest.approx(metrics.movements, rel=1e-8, abs=1e-15)
    for mine, layer in zip(found["net"], layers, strict=True):
        torch.testing.assert_close(torch.tensor(mine["W"], dtype=torch.float64), layer.weight.data, rtol=0, atol=1e-9)
        torch.testing.assert_close(torch.tensor(mine["b"], dtype=torch.float64), layer.bias.data, rtol=0, atol=1e-9)


def test_a_step_that_would_raise_the_objective_is_not_taken_by_either() -> None:
    """Four blocks with large weights and a small mu, where the quadratic model of the loss is poor."""
    model, layers = network((3, 6, 5, 6, 3), seed=3)
    with torch.no_grad():
        for layer in layers:
            layer.weight *= 16
    x, y = torch.randn(10, 3, dtype=torch.float64), torch.arange(10) % 3
    found = in_javascript(layers, x, y, share=1.0, order="codes-first", start=0.01, lr=0.02, steps=15)
    am = altmin.AltMin(
        model,
        codes=altmin.GradientCodes(share=1.0),
        weights=altmin.LocalAdam(lr=0.02),
        penalty=altmin.Penalty(start=0.01),
    )
    for seen in found["seen"]:
        assert seen["moves"] == pytest.approx(am.step(x, y).movements, rel=1e-7, abs=1e-15)
    refused = [seen["moves"][-1] == 0 for seen in found["seen"]]
    assert any(refused)
    assert not all(refused)
    for mine, layer in zip(found["net"], layers, strict=True):
        torch.testing.assert_close(torch.tensor(mine["W"], dtype=torch.float64), layer.weight.data, rtol=0, atol=1e-8)
