"""A sample of weight w is trained on as one that stands w times in its mini-batch, by all methods that take weights."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin.core.losses import adapt

F64 = torch.float64
W = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.0, 4.0], dtype=F64)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "am-adam": ("am-adam", {}),
    "am-adam, weights first": ("am-adam", {"order": "weights-first"}),
    "am-adam, inner steps": ("am-adam", {"steps": 3}),
    "am-sgd": ("am-sgd", {"share": 1.0}),
    "am-mem": ("am-mem", {}),
    "am-mem-fitted": ("am-mem-fitted", {}),
    "adam": ("adam", {}),
    "sgd": ("sgd", {}),
}
LOSSES = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "mse": nn.MSELoss(),
}


def net(activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    return altmin.models.mlp(5, (8, 7), 3, activation).double()


def batch(loss: str) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(6, 5, dtype=F64, generator=g)
    return x, torch.randn(6, 3, dtype=F64, generator=g) if loss == "mse" else torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    "name, loss, activation",
    [*((name, "smoothed", nn.Tanh) for name in METHODS), *(("am-adam", loss, nn.ReLU) for loss in LOSSES)],
)
def test_steps_with_weights_are_steps_on_repeated_samples(name: str, loss: str, activation: type[nn.Module]) -> None:
    x, y = batch(loss)
    method, options = METHODS[name]
    weighted, repeated, plain = (
        altmin.methods.create(method, net(activation), loss=LOSSES[loss], **copy.deepcopy(options)) for _ in range(3)
    )
    times = W.long()
    for _ in range(5):
        a = weighted.step(x, y, sample_weight=W)
        b = repeated.step(x.repeat_interleave(times, 0), y.repeat_interleave(times, 0))
        plain.step(x, y)
        assert float(a.loss) == pytest.approx(float(b.loss), rel=1e-12)
        if hasattr(a, "objective"):
            assert a.objective == pytest.approx(b.objective, rel=1e-10)
            assert a.residuals == pytest.approx(b.residuals, rel=1e-8, abs=1e-14)
            assert a.movements == pytest.approx(b.movements, rel=1e-8, abs=1e-14)
    ours, theirs, other = (nn.utils.parameters_to_vector(m.model.parameters()) for m in (weighted, repeated, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)
    assert float((ours - other).detach().abs().max()) > 1e-3


def test_only_the_ratios_of_weights_count_for_a_local_rule() -> None:
    x, y = batch("cross-entropy")
    once, tenfold = (altmin.AltMin(net(), weights=altmin.LocalSGD()) for _ in range(2))
    once.step(x, y, sample_weight=W)
    tenfold.step(x, y, sample_weight=10 * W)
    torch.testing.assert_close([*once.model.parameters()], [*tenfold.model.parameters()])


@pytest.mark.parametrize("w", [torch.ones(5), torch.zeros(6), -torch.ones(6), torch.full((6,), torch.nan)])
def test_weights_that_make_no_sense_are_refused_and_nothing_changes(w: Any) -> None:
    x, y = batch("cross-entropy")
    for name in ("am-adam", "adam"):
        method = altmin.methods.create(name, net())
        with pytest.raises(ValueError):
            method.step(x, y, sample_weight=w)
        assert all(torch.equal(p, q) for p, q in zip(method.model.parameters(), net().parameters(), strict=True))


REFUSED = {
    "batch norm": lambda: (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)), {}),
    "fixed batch norm": lambda: (
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)).eval(),
        {},
    ),
    "a search": lambda: (nn.Sequential(nn.Linear(5, 4), altmin.Sign(), nn.Linear(4, 3)), {}),
    "a loss of one's own": lambda: (net(), {"loss": lambda o, t: o.square().mean()}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_weigh_samples_refuses_weights(name: str) -> None:
    model, options = REFUSED[name]()
    with pytest.raises(ValueError):
        altmin.AltMin(model.double(), **options).step(*batch("cross-entropy"), sample_weight=W)


def test_a_loss_at_every_place_takes_no_weights() -> None:
    with pytest.raises(ValueError):
        adapt(nn.CrossEntropyLoss()).weighted(torch.zeros(6, 3, 2), batch("cross-entropy")[1], W)


@pytest.mark.parametrize("name", ["am-adam", "sgd"])
def test_labels_that_do_not_count_are_refused_beside_weights(name: str) -> None:
    """The mean over those that count is another one for repeated samples."""
    model = nn.Linear(4, 3).double()
    before = copy.deepcopy(model.state_dict())
    x, y, w = torch.randn(3, 4).double(), torch.tensor([0, -100, 2]), torch.tensor([1.0, 1.0, 2.0])
    with pytest.raises(ValueError):
        altmin.methods.create(name, model).step(x, y, sample_weight=w)
    assert all(torch.equal(p, before[key]) for key, p in model.state_dict().items())
