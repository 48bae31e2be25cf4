"""Nets and rules that every runner is tried with, in float64, and steps of one process for comparison."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from branching import MODULES
from graph_cases import CASES
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import altmin
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

    def model(self, seed: int = 0, device: str = "cpu") -> nn.Module:
        torch.manual_seed(seed)
        return self.make().to(device, F64)

    def batches(self, count: int, device: str = "cpu", seed: int = 5) -> list[tuple[Tensor, Tensor]]:
        torch.manual_seed(seed)
        return [tuple(t.to(device) for t in self.batch()) for _ in range(count)]


def of_shape(*shape: int, classes: int = 3, samples: int = 7) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(samples, *shape, dtype=F64), torch.randint(classes, (samples,)))


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randint(7, (4, 6)), torch.randint(7, (4, 6))


def mlp(*widths: int, activation: Any = nn.ReLU) -> nn.Sequential:
    return models.mlp(5, widths, 3, activation)[1:]


def normed() -> nn.Sequential:
    """Equal layers, batch norm, two activations, no bias in one layer."""
    return nn.Sequential(
        *(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU()),
        *(nn.Linear(6, 6, bias=False), nn.Tanh(), nn.Linear(6, 3)),
    )


def convolutions() -> nn.Sequential:
    """Pools that overlap and pools of means."""
    return nn.Sequential(
        *(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(3, 4, 2), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3)),
    )


def small_gpt() -> nn.Module:
    """Weights large enough for attention to prefer one token to another."""
    model = models.gpt(1, 8, 2, 6, 7)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


def second_bias() -> nn.Module:
    model = models.elman(4, 6, 2, 3)
    nn.init.normal_(model[0].bias_ih_l0)
    return model


class Decides(nn.Module):
    """Cannot be traced, so its batch norm goes through autograd with it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(5, 5), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.norm(self.layer(x)))
        return x + y if self.training else x + y.clamp(-1, 1)


class Centred(nn.Module):
    """Subtracts a mean of its inputs that lies in a buffer, where each forward adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.layer(x - self.mean)


def around(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Net:
    """A module that branches between an affine layer and the output, on samples of its shape."""
    size = make()(torch.zeros(5, *shape[1:])).flatten(1).shape[1]
    conv = len(shape) == 4
    return Net(
        lambda: nn.Sequential(
            nn.Conv2d(shape[1], shape[1], 1) if conv else nn.Linear(shape[-1], shape[-1]),
            *(make(), nn.Flatten(), nn.Linear(size, 3)),
        ),
        of_shape(*shape[1:]),
    )


def without_dropout(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model = make()
        for m in model.modules():
            m.p = 0.0 if isinstance(m, nn.Dropout) else getattr(m, "p", None)
        return model

    return made


def affine(model: nn.Module) -> list[str]:
    """The names of all affine maps of a model but the last: the finest cut."""
    return [name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)][:-1]


FEW = {
    "normed": Net(normed, of_shape(5)),
    "12 layers": Net(lambda: mlp(*[6] * 12), of_shape(5)),
    "convolutions": Net(convolutions, of_shape(2, 10, 10)),
    "elman": Net(second_bias, of_shape(6, 2)),
    "lstm": Net(lambda: models.lstm(4, inputs=2, outputs=3), of_shape(6, 2)),
    "embedding": Net(
        lambda: nn.Sequential(nn.Embedding(9, 4, padding_idx=1), nn.Flatten(), *mlp(6)[:0], nn.Linear(12, 3)),
        lambda: (torch.randint(9, (7, 3)), torch.randint(3, (7,))),
    ),
    "other modules": Net(
        lambda: nn.Sequential(
            nn.Linear(5, 6), nn.LayerNorm(6), nn.Softmax(1), nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 3)
        ),
        of_shape(5),
    ),
    "autograd": Net(lambda: nn.Sequential(nn.Linear(5, 5), Decides(), nn.Linear(5, 3)), of_shape(5)),
    "own buffer": Net(lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), Centred(), nn.Linear(6, 3)), of_shape(5)),
    "resnet18": Net(lambda: models.resnet18(2, 3), of_shape(3, 8, 8, samples=5)),
    "gpt": Net(small_gpt, tokens),
    "regression": Net(
        lambda: mlp(6, 6, activation=nn.Tanh),
        lambda: (torch.randn(7, 5, dtype=F64), torch.rand(7, 3, dtype=F64)),
        nn.MSELoss(),
    ),
    "own loss": Net(
        lambda: mlp(6),
        lambda: (torch.randn(7, 4, 5, dtype=F64), torch.rand(7, 4, 3, dtype=F64)),
        lambda o, y: (o - y).abs().pow(1.5).mean(),
    ),
}
MORE = {
    "residual mlp": Net(lambda: models.residual_mlp(6, 3, 5, 3), of_shape(5)),
    **{f"{make.__name__}, {len(shape)} dimensions": around(make, shape) for make, shape in MODULES},
    **{name: Net(without_dropout(case.make), case.batch, case.loss) for name, case in CASES.items()},
}
CUT = {
    f"{name}, cut inside": net._replace(at=affine(net.make()))
    for name, net in {"resnet18": FEW["resnet18"], "gpt": FEW["gpt"], **MORE}.items()
    if name != "residual mlp"
}
NETS = {**FEW, **MORE, **CUT}
# rates that float32, in which they lie on a device, holds exactly; each member has its own
RULES: dict[str, Callable[[int], dict[str, Any]]] = {
    "adam": lambda i: {"weights": altmin.LocalAdam(2.0 ** -(7 + i), weight_decay=0.1 * i, betas=(0.9 - 0.4 * i, 0.9))},
    "adamw": lambda i: {
        "weights": altmin.LocalAdam(2.0**-7, weight_decay=0.1 + i, decoupled_weight_decay=True, decay_biases=False)
    },
    "sgd": lambda i: {"weights": altmin.LocalSGD(2.0 ** -(4 + i), momentum=0.9 / (1 + i), weight_decay=0.01)},
    "sgd, plain": lambda i: {"weights": altmin.LocalSGD(2.0 ** -(4 + i), momentum=0.0)},
    "inner steps, l1, clipping": lambda i: {
        "weights": altmin.LocalAdam(2.0**-7, steps=3, l1=2.0 ** -(6 + i), clip_norm=0.1)
    },
    "solved memory": lambda i: {"weights": altmin.CoActivationMemory(2.0 ** -(7 + i), rank=5, weight_decay=0.1)},
    "sums": lambda i: {"weights": altmin.FittedMemory(0.5, rate=1.0, rest=altmin.LocalAdam(2.0 ** -(7 + i)))},
    "sums, two steps": lambda i: {
        "weights": altmin.FittedMemory(0.9, 2.0, rate=None, rest=altmin.LocalSGD(2.0 ** -(4 + i)), steps=2)
    },
    "sums, sweeps": lambda i: {
        "weights": altmin.FittedMemory(1.0, sweeps=1, rate=1.0, rest=altmin.LocalAdam(2.0 ** -(7 + i), steps=2))
    },
    "weights first": lambda i: {"codes": altmin.GradientCodes(order="weights-first", share=1.0)},
    "printed codes": lambda i: {"codes": "printed"},
    "mu": lambda i: {
        "weights": altmin.LocalSGD(2.0**-4),
        "penalty": altmin.Penalty(0.5 + i, increment=0.3, growth=1.5, maximum=2.2),
    },
}


def build(net: str, rule: str, i: int = 0, device: str = "cpu", **options: Any) -> Any:
    """Member i: an `AltMin` with this rule, or a method: "backprop adam"."""
    case = NETS[net]
    model = case.model(i, device)
    if rule in RULES:
        return altmin.AltMin(model, **{**case.options(), **RULES[rule](i), **options})
    loss = {} if case.loss is None else {"loss": case.loss}
    name = rule.removeprefix("backprop ")
    own = {"rank": 5} if name == "coactivation" else {"fused": True}
    return altmin.methods.create(name, model, lr=2.0 ** -(7 + i), **own, **loss, **options)


class Course(NamedTuple):
    """What members did: their losses, (steps, members), and every tensor and number of their models and states."""

    losses: Tensor
    states: list[dict[str, Tensor]]


def course(losses: Iterable[Tensor], members: Iterable[Any]) -> Course:
    return Course(torch.stack([loss.detach().cpu() for loss in losses]), [state(method) for method in members])


def state(method: Any) -> dict[str, Tensor]:
    """Weights and everything that the next step depends on, by their places; but for the root P of a memory's K, which
    magnifies rounding."""
    tree = (
        dict(method.model.state_dict()),
        method.state_dict(),
        getattr(method, "penalty", None) and method.penalty.value,
    )
    leaves = pytree.tree_flatten_with_path(tree)[0]
    return {
        pytree.keystr(path): torch.as_tensor(t, dtype=F64, device="cpu").detach().clone()
        for path, t in leaves
        if isinstance(t, Tensor | float) and not pytree.keystr(path).endswith(("['lr']", "['P']"))
    }


@cache
def alone(net: str, rule: str, device: str, steps: int) -> Course:
    """Two members, each in a run of its own."""
    members, data = [build(net, rule, i, device) for i in range(2)], NETS[net].batches(steps, device)
    losses = [torch.stack([method.step(x, y).loss.detach() for method in members]) for x, y in data]
    for method in members:
        method.end_epoch()
    return course(losses, members)


def same(found: Any, expected: Any, within: float = 1e-8) -> None:
    torch.testing.assert_close(found, expected, rtol=within, atol=within, equal_nan=True, check_device=False)


def same_models(a: nn.Module, b: nn.Module, within: float = 1e-8) -> None:
    """All parameters and buffers."""
    same(dict(a.state_dict()), dict(b.state_dict()), within)
