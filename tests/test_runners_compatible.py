"""What an ensemble refuses, in a sentence that says what differs, and with nothing changed."""

from typing import Any

import pytest
import torch
from ensembles import OPTIONS, batches, build, first_frozen, weighted
from torch import nn

import altmin
from altmin import Ensemble, methods, models


def relu(width: int = 4) -> nn.Module:
    return models.mlp(5, (6, width), 3)


class Scaled(nn.Module):
    """Holds numbers that are neither parameters nor buffers."""

    def __init__(self, by: float):
        super().__init__()
        self.by, self._times = torch.tensor(by), 1.0 if by else 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.by * self._times * x


def scaled(by: float) -> altmin.AltMin:
    return altmin.AltMin(nn.Sequential(nn.Linear(5, 6), Scaled(by), nn.Linear(6, 3)))


def gathered() -> altmin.AltMin:
    am = altmin.AltMin(relu())
    am.gather(torch.ones(2, 5), torch.tensor([0, 1]))
    return am


def pair(a: Any, b: Any) -> list[Any]:
    return [a, b]


DIFFERENT: dict[str, tuple[Any, str]] = {
    "no member": (list, "at least one member, given none"),
    "offline": (lambda: build("am-adam-offline", "mlp", [{}]), "Offline is neither AltMin nor Backprop"),
    "kinds": (lambda: pair(*build("adam", "mlp", [{}]), *build("am-adam", "mlp", [{}])), "the kind of method"),
    "widths": (
        lambda: pair(altmin.AltMin(relu()), altmin.AltMin(relu(8))),
        r"out_features of layer 3 of the model is 4 in member 0 but 8 in member 1; give both the same",
    ),
    "activations": (
        lambda: pair(altmin.AltMin(relu()), altmin.AltMin(models.mlp(5, (6, 4), 3, nn.Tanh))),
        "layer 2 of the model is 'ReLU' in member 0 but 'Tanh' in member 1",
    ),
    "private numbers": (lambda: pair(scaled(1.0), scaled(0.0)), "(by|_times) of layer 1 of the model is"),
    "types": (lambda: pair(altmin.AltMin(relu()), altmin.AltMin(relu().double())), "float32.* but .*float64"),
    "modes": (lambda: pair(altmin.AltMin(relu()), altmin.AltMin(relu().eval())), "training of the model is True"),
    "frozen": (
        lambda: pair(altmin.AltMin(relu()), altmin.AltMin(first_frozen())),
        "whether 1.weight is trained is True in member 0 but False",
    ),
    "rules": (
        lambda: pair(altmin.AltMin(relu()), altmin.AltMin(relu(), weights=altmin.LocalSGD())),
        "the optimizer is 'FusedAdam' in member 0 but 'SGD'",
    ),
    "inner steps": (
        lambda: build("am-adam", "mlp", [{}, {"steps": 2}]),
        "steps of the weight rule LocalAdam is 1 in member 0 but 2 in member 1",
    ),
    "a rate": (
        lambda: build("am-mem-fitted", "mlp", [{}, {"rate": None}]),
        "whether rate of the weight rule FittedMemory is a number",
    ),
    "losses": (
        lambda: build("am-adam", "mlp", [{}, {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}]),
        "smoothing of the loss is 0.0",
    ),
    "weights of losses": (
        lambda: build("adam", "mlp", [{"loss": weighted(1.0, 2.0, 3.0)}, {"loss": weighted(1.0, 2.0, 4.0)}]),
        r"weight of the loss is \[1.0, 2.0, 3.0\] in member 0",
    ),
    "optimizers": (
        lambda: [methods.backprop.Backprop(relu := models.mlp(5, (6,), 3), torch.optim.RMSprop(relu.parameters()))],
        "RMSprop is neither Adam, AdamW nor SGD",
    ),
    "nesterov": (
        lambda: [
            methods.backprop.Backprop(
                net := models.mlp(5, (6,), 3), torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)
            )
        ],
        "its optimizer has nesterov",
    ),
    "discrete": (lambda: [altmin.AltMin(models.binary_mlp(5, (6,), 3, altmin.Sign))], "DiscreteCodes decides"),
    "order": (
        lambda: pair(
            *(altmin.AltMin(relu(), codes=altmin.GradientCodes(order=o)) for o in ("codes-first", "weights-first"))
        ),
        "order of the code solver is 'codes-first' in member 0 but 'weights-first' in member 1",
    ),
    "no damping": (lambda: build("am-mem-fitted", "mlp", [{"damping": 0.0, "steps": None}]), "above 0, or steps"),
    "weight decay": (
        lambda: pair(
            *(altmin.AltMin(relu(), weights=altmin.LocalAdam(decoupled_weight_decay=d)) for d in (True, False))
        ),
        "decoupled weight decay is",
    ),
    "gathered": (lambda: [gathered()], "wait for apply"),
    "shared": (lambda: (lambda net: pair(altmin.AltMin(net), altmin.AltMin(net)))(relu()), "members 0 and 1 share"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_members_that_do_not_fit_together_are_refused_in_a_sentence_and_left_as_they_are(what: str) -> None:
    make, sentence = DIFFERENT[what]
    members = make()
    places = [p.data_ptr() for method in members for p in method.model.parameters()]
    with pytest.raises(ValueError, match=sentence):
        Ensemble(members)
    assert places == [p.data_ptr() for method in members for p in method.model.parameters()]


def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    ensemble = Ensemble(build("am-adam", "mlp", OPTIONS["am-adam"]))
    before = [p.clone() for p in ensemble.model.parameters()]
    x, y = batches("mlp", 1)[0]
    bad = y.clone()
    bad[1, 2] = 3
    for given in ((x[:2], y[:2]), (x.float(), y), (x, bad), (x[0], y[0, :3])):
        with pytest.raises((ValueError, RuntimeError)):
            ensemble.step(*given)
    assert all(torch.equal(a, b) for a, b in zip(before, ensemble.model.parameters(), strict=True))
    assert ensemble.steps == 0


def test_a_memory_without_damping_is_welcome_if_it_sweeps() -> None:
    ensemble = Ensemble(build("am-mem-fitted", "mlp", [{"damping": 0.0, "sweeps": 1, "rate": 1.0}] * 2))
    before = [p.clone() for p in ensemble.member(0)[1].parameters()]
    ensemble.step(*batches("mlp", 1, own=False)[0])
    assert not any(torch.equal(a, b) for a, b in zip(before, ensemble.member(0)[1].parameters(), strict=True))


def test_a_label_out_of_range_leaves_running_statistics_as_they_are() -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    ensemble = Ensemble(build("am-adam", net, [{}, {}]))
    before = {name: value.clone() for name, value in ensemble.model.state_dict().items()}
    x, y = batches("mlp", 1, own=False)[0]
    with pytest.raises(ValueError, match="label 7 is out of range"):
        ensemble.step(x, y.clone().fill_(7))
    for name, value in ensemble.model.state_dict().items():
        assert torch.equal(value, before[name]), name
