"""Models that return tuples, lists or dicts, with a loss of one's own."""

from typing import Any

import pytest
import torch
from graph_cases import F64, as_backprop
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.training import fit


class Heads(nn.Module):
    """Two heads, as the form says."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 6)
        self.kind, self.size, self.form = nn.Linear(6, 3), nn.Linear(6, 1), form

    def forward(self, x: Tensor) -> Any:
        x = torch.tanh(self.b(torch.tanh(self.a(x))))
        kind, size = self.kind(x), self.size(x).squeeze(1)
        if self.form == "dict":
            return {"kind": kind, "size": size}
        if self.form == "one":
            return {"kind": kind}
        return (kind, [size, None]) if self.form == "nested" else (kind, size)


def of_dict(output: Any, y: Tensor) -> Tensor:
    return F.cross_entropy(output["kind"], y[:, 0].long()) + F.mse_loss(output["size"], y[:, 1])


LOSSES: dict[str, Any] = {
    "dict": of_dict,
    "one": lambda output, y: F.cross_entropy(output["kind"], y[:, 0].long()),
    "tuple": lambda output, y: of_dict({"kind": output[0], "size": output[1]}, y),
    "nested": lambda output, y: of_dict({"kind": output[0], "size": output[1][0]}, y),
}


def batch(n: int = 12) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(n, 4, dtype=F64)
    return x, torch.stack([(x[:, 0] > 0).double() + (x[:, 1] > 0).double(), x[:, 2]], 1)


@pytest.mark.parametrize("form", LOSSES)
@pytest.mark.parametrize("at", [None, ["a"], []])
def test_codes_that_stay_give_autograds_gradients(form: str, at: Any) -> None:
    x, y = batch()
    as_backprop(Heads(form).double(), x, y, LOSSES[form], at=at)


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_fit_trains_it_and_measures_loss_and_functions(method: str) -> None:
    x, y = batch(400)
    model = Heads("dict").double()

    def accuracy(output: Any, y: Tensor) -> Tensor:
        return (output["kind"].argmax(1) == y[:, 0]).double().mean()

    metrics = {"loss": "loss", "kind": accuracy}
    trained = altmin.methods.create(method, model, lr=0.02, loss=of_dict)
    history = fit(trained, (x, y), (x, y), epochs=20, batch_size=50, metrics=metrics)
    last = history.epochs[-1]
    assert last["test_kind"] > 0.9
    with torch.no_grad():
        assert last["test_loss"] == pytest.approx(float(of_dict(model(x), y)), rel=1e-6)


@pytest.mark.parametrize("loss", [None, nn.MSELoss()])
def test_it_needs_a_loss_that_takes_it(loss: Any) -> None:
    with pytest.raises(ValueError, match=r"the model returns a tuple; give a loss that takes it"):
        altmin.AltMin(Heads("tuple"), loss)


def test_outputs_that_cannot_be_one_are_refused() -> None:
    class Labels(Heads):
        def forward(self, x: Tensor) -> Any:
            kind = self.kind(torch.tanh(self.b(torch.tanh(self.a(x)))))
            return kind, kind.argmax(1)

    x, y = batch()
    with pytest.raises(ValueError, match="several values pass at the output and cannot be one code"):
        altmin.AltMin(Labels("tuple").double(), LOSSES["tuple"]).step(x, y)
