"""Ensembles side by side with their members' separate runs."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import Ensemble, methods, models

MEMBERS = 3
Build = Callable[[], list[Any]]
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "mlp": (lambda: models.mlp(5, (6, 4), 3), (5,), 3),
    "lenet5": (lambda: models.lenet5(3), (1, 28, 28), 3),
    "elman": (lambda: models.elman(4, 6, 2, 3), (6, 2), 3),
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "am-adam": [{"lr": 0.01}, {"lr": 0.002, "weight_decay": 0.1}, {"lr": 0.02, "l1": 0.01, "penalty": 3.0}],
    "am-sgd": [{"lr": 0.01}, {"lr": 0.1, "momentum": 0.0}, {"lr": 0.05, "weight_decay": 0.1, "l1": 0.01}],
    "am-mem": [
        {"lr": 0.01},
        {"lr": 0.02, "beta": 0.5, "forget": 0.7, "damping": 3.0},
        {"lr": 0.005, "weight_decay": 0.1, "penalty": 2.0},
    ],
    "am-mem-fitted": [
        {"rate": 1.0},
        {"rate": 2.0, "forget": 0.5, "damping": 3.0},
        {"rate": 1.0, "lr": 0.01, "penalty": 2.0},
    ],
    "adam": [{"lr": 0.01}, {"lr": 0.1}, {"weight_decay": 0.1}],
    "adamw": [{"lr": 0.01}, {"lr": 0.1}, {"weight_decay": 0.1}],
    "sgd": [{"lr": 0.01}, {"momentum": 0.0}, {"lr": 0.05, "weight_decay": 0.1}],
}


def build(
    name: str, net: str | Callable[[], nn.Module], options: Sequence[Any], dtype: Any = torch.float64
) -> list[Any]:
    """A method for each set of options, the i-th with first weights of seed i; options may be made by a function."""
    made = []
    for i, given in enumerate(options):
        torch.manual_seed(i)
        model = (NETS[net][0] if isinstance(net, str) else net)().to(dtype)
        made.append(methods.create(name, model, **(given() if callable(given) else given)))
    return made


def batches(net: str, steps: int = 5, own: bool = True, samples: int = 7, dtype: Any = torch.float64) -> list[Any]:
    """Mini-batches of each member's own, or for all of them."""
    _, shape, classes = NETS[net]
    generator = torch.Generator().manual_seed(11)
    front = (MEMBERS, samples) if own else (samples,)
    return [
        (
            torch.randn(*front, *shape, generator=generator, dtype=dtype),
            torch.randint(classes, front, generator=generator),
        )
        for _ in range(steps)
    ]


def part(batch: tuple[Tensor, Tensor], i: int) -> tuple[Tensor, Tensor]:
    """What member i sees of a batch."""
    x, y = batch
    return (x[i], y[i]) if y.ndim == 2 else (x, y)


def agree(alone: Sequence[Any], ensemble: Ensemble, atol: float = 1e-8, members: Sequence[int] | None = None) -> None:
    """Parameters and buffers of the separate runs are those of the ensemble's members."""
    for i in range(len(alone)) if members is None else members:
        expected, found = alone[i].model.state_dict(), ensemble.member(i).state_dict()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=0, atol=atol, msg=f"member {i}, {name}")


def compare(make: Build, data: Sequence[Any], atol: float = 1e-8) -> Ensemble:
    """Runs both ways, losses and mu held against each other at every step, weights at the end."""
    alone, ensemble = make(), Ensemble(make())
    start = [p.clone() for p in ensemble.model.parameters()]
    for batch in data:
        expected = [method.step(*part(batch, i)) for i, method in enumerate(alone)]
        found = ensemble.step(*batch)
        torch.testing.assert_close(found.loss, torch.stack([e.loss.detach() for e in expected]), rtol=0, atol=atol)
        if found.penalty is not None:
            assert found.penalty.tolist() == [e.penalty for e in expected]
            assert found.objective.tolist() == pytest.approx([e.objective for e in expected], rel=atol)
    agree(alone, ensemble, atol)
    assert any(not torch.equal(a, b) for a, b in zip(start, ensemble.model.parameters(), strict=True))
    assert ensemble.diverged == {}
    return ensemble


def sick(kind: str, name: str, net: str = "mlp") -> tuple[list[Any], list[Any]]:
    """Members and data: the second diverges by its rate, or is given data that are not finite in the third step."""
    options: list[Any] = [dict(each) for each in OPTIONS[name]]
    data = batches(net, 6)
    if kind == "rate":
        options[1] = {"lr": 1e200 if "adam" in name or "am-mem" in name else 1e160}
    else:
        data[2][0][1, 0, 0] = float("nan")
    return options, data


def spoil(model: nn.Module) -> None:
    """Weights that are finite, and with which no step is."""
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1e200)


def first_frozen() -> nn.Module:
    model = models.mlp(5, (6, 4), 3)
    models.freeze_first(model)
    return model


def weighted(*weights: float) -> nn.Module:
    return nn.CrossEntropyLoss(weight=torch.tensor(weights, dtype=torch.float64))
