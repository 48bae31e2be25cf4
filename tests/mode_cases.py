"""Nets that branch, for tests of the ways to run a step: in an ensemble, recorded, compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from branching import MODULES
from graph_cases import CASES
from torch import Tensor, nn

from altmin import models

F64 = torch.float64


class Net(NamedTuple):
    """A model, one of its mini-batches, the loss, and where it is cut."""

    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Any = None
    at: list[str] | None = None

    def options(self) -> dict[str, Any]:
        return {"at": self.at} | ({} if self.loss is None else {"loss": self.loss})

    def batches(self, count: int, seed: int = 5) -> list[tuple[Tensor, Tensor]]:
        torch.manual_seed(seed)
        return [self.batch() for _ in range(count)]


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 3, 8, 8, dtype=F64), torch.randint(3, (5,))


def rows() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 5, dtype=F64), torch.randint(3, (6,))


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randint(7, (4, 6)), torch.randint(7, (4, 6))


def small_gpt() -> nn.Module:
    """Weights large enough for attention to prefer one token to another."""
    model = models.gpt(1, 8, 2, 6, 7)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


def affine(model: nn.Module) -> list[str]:
    """The names of all affine maps of a model but the last: the finest cut."""
    return [name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)][:-1]


def around(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Net:
    """A module that branches between an affine layer and the output, on samples of its shape."""
    samples = (5, *shape[1:])
    size = make()(torch.zeros(samples)).flatten(1).shape[1]
    first: Callable[[], nn.Module] = (
        (lambda: nn.Conv2d(shape[1], shape[1], 1)) if len(shape) == 4 else lambda: nn.Linear(shape[-1], shape[-1])
    )
    return Net(
        lambda: nn.Sequential(first(), make(), nn.Flatten(), nn.Linear(size, 3)),
        lambda: (torch.randn(samples, dtype=F64), torch.randint(3, (5,))),
    )


def without_dropout(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model = make()
        for m in model.modules():
            m.p = 0.0 if isinstance(m, nn.Dropout) else getattr(m, "p", None)
        return model

    return made


NETS = {
    "resnet18": Net(lambda: models.resnet18(2, 3), images),
    "gpt": Net(small_gpt, tokens),
    "residual mlp": Net(lambda: models.residual_mlp(6, 3, 5, 3), rows),
    **{f"{make.__name__}, {len(shape)} dimensions": around(make, shape) for make, shape in MODULES},
    **{name: Net(without_dropout(case.make), case.batch, case.loss) for name, case in CASES.items()},
}
CUT = {
    f"{name}, cut inside": net._replace(at=affine(net.make())) for name, net in NETS.items() if name != "residual mlp"
}
EVERY = NETS | CUT
