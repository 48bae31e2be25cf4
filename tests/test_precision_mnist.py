"""With rounded products a net still learns."""

import torch

from altmin import data, methods, models
from altmin.training import fit


def test_am_adam_learns_with_rounded_products_about_as_well() -> None:
    (x, y), test = data.load("mnist", "train"), data.load("mnist", "test")
    found = {}
    for name in ("float32", "bf16"):
        torch.manual_seed(0)
        method = methods.create("am-adam", models.create("mlp-2x100", (1, 28, 28), 10), lr=0.004)
        history = fit(method, (x[:5000], y[:5000]), test, epochs=3, batch_size=100, precision=name)
        found[name] = history.epochs[-1]["test_accuracy"]
    assert found["float32"] != found["bf16"]
    assert found["float32"] > 0.9
    assert abs(found["float32"] - found["bf16"]) < 0.02
