"""Batches and members that an ensemble refuses, and that nothing has changed then."""

from typing import Any

import pytest
import torch
from runner_cases import F64, RULES, build, mlp, same_models
from test_runners_ensemble import crew, own_batches, part
from torch import Tensor, nn

import altmin
from altmin import Ensemble, models
from altmin.methods.backprop import Backprop


def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    ensemble, (x, y) = Ensemble(crew()), own_batches(1)[0]
    before = [t.clone() for t in ensemble.tensors()]
    bad = y.clone()
    bad[1, 2] = 3
    pairs = torch.rand(3, 7, 3, dtype=F64)
    refused = [
        (x[:2], y[:2]),
        (x.float(), y),
        (x, bad),
        (x[0], y[0].clone().fill_(7)),
        (x[0], y[0, :3]),
        (x, pairs),
        (x.tolist(), y),
    ]
    for given in refused:
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            ensemble.step(*given)
    assert all(map(torch.equal, before, ensemble.tensors()))
    assert ensemble.steps == 0


def test_tokens_and_numbers_can_be_for_all_or_for_each_and_it_must_be_said() -> None:
    for net in ("gpt", "regression"):
        ensemble, alone = Ensemble(crew(net=net)), crew(net=net)
        batch = own_batches(1, net=net)[0]
        with pytest.raises(ValueError, match="each=True"):
            ensemble.step(*batch)
        ensemble.step(*batch, each=True)
        ensemble.step(*part(batch, 0))
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
            method.step(*part(batch, 0))
            same_models(ensemble.member(i), method.model, 1e-7)


class Scaled(nn.Module):
    """A layer with a number that no module of torch has."""

    def __init__(self, by: float):
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return self.by * x


def of(model: nn.Module | None = None, **options: Any) -> altmin.AltMin:
    return altmin.AltMin(mlp(6, 4) if model is None else model, **options)


def frozen() -> nn.Module:
    model = mlp(6, 4)
    model[0].requires_grad_(False)
    return model


def gathered() -> altmin.AltMin:
    am = of()
    am.gather(torch.ones(2, 5), torch.tensor([0, 1]))
    return am


def backprop(optimizer: Any, **options: Any) -> Backprop:
    model = mlp(6)
    return Backprop(model, optimizer(model.parameters(), 0.1, **options))


def shared() -> list[Any]:
    model = mlp(6)
    return [of(model), of(model)]


CROSS = nn.CrossEntropyLoss
REFUSED: dict[str, Any] = {
    "no member": list,
    "offline": lambda: [altmin.methods.create("am-adam-offline", mlp(6))],
    "kinds": lambda: [of(), backprop(torch.optim.Adam)],
    "widths": lambda: [of(), of(mlp(8, 4))],
    "activations": lambda: [of(), of(mlp(6, 4, activation=nn.Tanh))],
    "numbers of layers": lambda: [of(nn.Sequential(nn.Linear(5, 3), Scaled(k))) for k in (1.0, 2.0)],
    "types": lambda: [of(), of(mlp(6, 4).double())],
    "modes": lambda: [of(), of(mlp(6, 4).eval())],
    "frozen": lambda: [of(), of(frozen())],
    "rules": lambda: [of(), of(weights=altmin.LocalSGD())],
    "inner steps": lambda: [of(), of(weights=altmin.LocalAdam(steps=2))],
    "memories": lambda: [of(weights=altmin.FittedMemory(forget=forget)) for forget in (0.5, 0.6)],
    "share": lambda: [of(codes=altmin.GradientCodes(share=share)) for share in (0.1, 0.2)],
    "increments": lambda: [of(penalty=altmin.Penalty(increment=k)) for k in (0.1, 0.2)],
    "losses": lambda: [of(), of(loss=CROSS(label_smoothing=0.1))],
    "weights of losses": lambda: [of(loss=CROSS(weight=torch.tensor([1.0, 2.0, k]))) for k in (3.0, 4.0)],
    "optimizers": lambda: [backprop(torch.optim.RMSprop)],
    "nesterov": lambda: [backprop(torch.optim.SGD, momentum=0.9, nesterov=True)],
    "discrete codes": lambda: [of(models.binary_mlp(5, (6,), 3, altmin.Sign))],
    "codes of one's own": lambda: [of(codes=lambda segment, above: altmin.GradientCodes()(segment, above))],
    "exact fit": lambda: [of(weights=altmin.FittedMemory(damping=0.0, steps=None))],
    "weight decay": lambda: [of(weights=altmin.LocalAdam(decoupled_weight_decay=d)) for d in (True, False)],
    "clipping": lambda: [altmin.methods.create("adam", mlp(6), clip_norm=k) for k in (1.0, 2.0)],
    "gathered": lambda: [gathered()],
    "shared": shared,
}


@pytest.mark.parametrize("what", REFUSED)
def test_members_that_do_not_fit_together_are_refused_and_left_as_they_are(what: str) -> None:
    members = REFUSED[what]()
    places = [p.data_ptr() for method in members for p in method.model.parameters()]
    with pytest.raises(ValueError, match=r"member"):
        Ensemble(members)
    assert places == [p.data_ptr() for method in members for p in method.model.parameters()]


def test_rules_have_all_numbers_that_the_cases_vary() -> None:
    """Every rule of the matrix can be a member."""
    for rule in RULES:
        assert len(Ensemble([build("normed", rule, i) for i in range(2)])) == 2
