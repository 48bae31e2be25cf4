"""Methods, nets and losses whose training on several ranks is compared with that of one process."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from method_cases import NAMES
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin import AltMin, DiscreteCodes, FittedMemory, GradientCodes, LocalAdam, LocalSGD, models
from altmin.core.codes.discrete import StraightThroughCodes
from altmin.core.codes.recurrent import RecurrentCodes
from altmin.methods import create

F64 = torch.float64
SIZES = (7, 5, 2, 6)
"""Of batches: odd, ragged, and one with fewer samples than four ranks."""


class Case(NamedTuple):
    """A method for a new model, and the batches of one epoch: x, y and what a step takes besides."""

    method: Any
    batches: list[tuple[Tensor, Tensor, dict[str, Any]]]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def labels(classes: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(seed))


def batches(x: Tensor, y: Tensor, rows: bool = False, **more: Tensor) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
    """Batches of SIZES, as many as there are samples for. more: what has one entry for each sample."""
    if rows:
        more["rows"] = torch.arange(len(x))
    ends = [sum(SIZES[: i + 1]) for i in range(len(SIZES))]
    cuts = [slice(end - n, end) for end, n in zip(ends, SIZES, strict=True) if end <= len(x)]
    return [(x[cut], y[cut], {name: v[cut] for name, v in more.items()}) for cut in cuts]


def mlp(activation: type[nn.Module] = nn.ReLU, seed: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 9), activation(), nn.Linear(9, 8), activation(), nn.Linear(8, 4)]
    return nn.Sequential(*layers).to(F64)


def points(count: int = 20) -> tuple[Tensor, Tensor]:
    return numbers(count, 6), labels(4, count)


def by_name(name: str, **options: Any) -> Callable[[], Case]:
    """A registered method on a fully connected net."""

    def make() -> Case:
        method = create(name, mlp(), **options)
        return Case(method, batches(*points(), rows=getattr(method, "takes_rows", False)))

    return make


def am(
    model: Callable[[], nn.Module] = mlp,
    x: Callable[[], Tensor] = lambda: points()[0],
    y: Callable[[], Tensor] = lambda: points()[1],
    **parts: Any,
) -> Callable[[], Case]:
    """An `AltMin` of these parts; one that is a function makes it. Weights of samples are none of its parts."""
    w = parts.pop("sample_weight", None)

    def make() -> Case:
        torch.manual_seed(3)
        made = {name: part() if name in ("codes", "weights") else part for name, part in parts.items()}
        method = AltMin(model().to(F64), **made)
        return Case(method, batches(x(), y(), **({} if w is None else {"sample_weight": w})))

    return make


class Opaque(nn.Module):
    """A module whose branches altmin does not look into: batch norm and dropout inside one forward of its own."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.a, self.b = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.norm, self.dropout = nn.BatchNorm1d(width), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(torch.tanh(self.norm(self.a(x))))
        if h.shape[0] > 10**6:  # a decision by shapes, so that it goes through autograd as a whole
            return x
        return x + self.b(h)


def normalised() -> nn.Sequential:
    """Without biases before batch norm, whose gradients are rounding and nothing else."""
    layers = [nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 7, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm1d(7, momentum=None), nn.Tanh(), nn.Linear(7, 4))


def dropped() -> nn.Sequential:
    hidden = [nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.3), nn.Linear(9, 8), nn.Tanh(), nn.Dropout(0.2)]
    return nn.Sequential(*hidden, nn.Linear(8, 4))


def uses_autograd(dropout: float = 0.3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), Opaque(5, dropout), nn.Linear(5, 4))


def encoder() -> nn.Sequential:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(3, 4), layer, nn.Flatten(), nn.Linear(20, 4))


def ignored(rows: Iterable[int]) -> Tensor:
    y = points()[1].clone()
    y[list(rows)] = -100
    return y


def weights() -> Tensor:
    """Of 20 samples; zero for all that the last rank has of the first batch."""
    w = numbers(20, seed=2).abs()
    w[4:7] = 0
    return w


FIRST_RANK_ONLY = ignored([0, 3, 4, 5, 6, 8, 13, 15, 16, 19])
"""Labels that do not count, unevenly spread, and all of the last rank's in the first batch."""
WEIGHT = torch.tensor([0.3, 2.0, 1.0, 0.7], dtype=F64)
SEQUENCES: dict[str, Any] = {"x": lambda: numbers(20, 5, 2), "model": lambda: models.elman(4, 5, 2, 4)}

THREADS: dict[str, Callable[[], Case]] = {
    "share 0": am(codes=lambda: GradientCodes(share=0.0)),
    "share 1": am(lambda: mlp(nn.Tanh), codes=lambda: GradientCodes(share=1.0)),
    "weights first": am(lambda: mlp(nn.Sigmoid), codes=lambda: GradientCodes(order="weights-first")),
    "inner steps": am(lambda: mlp(nn.Tanh), weights=lambda: LocalAdam(steps=3)),
    "inner steps and a squared error": am(
        y=lambda: numbers(20, 4, seed=5), weights=lambda: LocalSGD(0.05, steps=2), loss=nn.MSELoss()
    ),
    "clipped": am(weights=lambda: LocalAdam(clip_norm=0.05)),
    "l1 of weights": am(weights=lambda: LocalAdam(0.01, l1=0.1)),
    "memory by sweeps": am(weights=lambda: FittedMemory(sweeps=2)),
    "memory solved": am(weights=lambda: FittedMemory(steps=None)),
    "memory without a rate": am(weights=lambda: FittedMemory(rate=None)),
    "sample weights": am(sample_weight=weights()),
    "sample weights in a memory": am(sample_weight=weights(), weights=lambda: FittedMemory()),
    "elman, parallel": am(**SEQUENCES, codes=lambda: RecurrentCodes("parallel")),
    "elman, exact": am(**SEQUENCES, codes=lambda: RecurrentCodes("exact", order="codes-first")),
    "sign": am(lambda: models.binary_mlp(6, (9, 8), 4), codes=DiscreteCodes),
    "straight-through codes": am(lambda: models.binary_mlp(6, (9, 8), 4), codes=StraightThroughCodes),
    "batch norm": am(normalised),
    "residual blocks with batch norm": am(
        lambda: models.resnet18(2, 4, 1), lambda: numbers(7, 1, 8, 8), lambda: labels(4, 7)
    ),
    "lenet5": am(lambda: models.lenet5(4), lambda: numbers(7, 1, 28, 28), lambda: labels(4, 7)),
    "gpt": am(lambda: models.gpt(1, 8, 2, 5, 4), lambda: labels(4, 20, 5, seed=7), lambda: labels(4, 20, 5)),
    "transformer layer": am(encoder, lambda: numbers(20, 5, 3)),
    "squared error": am(y=lambda: numbers(20, 4, seed=5), loss=nn.MSELoss()),
    "loss of one's own": am(loss=lambda o, y: F.multi_margin_loss(o, y) + 0.1 * o.square().mean()),
    "loss that adds": am(loss=nn.CrossEntropyLoss(reduction="sum")),
    "squared error that adds": am(y=lambda: numbers(20, 4, seed=5), loss=nn.MSELoss(reduction="sum")),
    "ignored labels": am(y=lambda: FIRST_RANK_ONLY),
    "ignored labels and class weights": am(y=lambda: FIRST_RANK_ONLY, loss=nn.CrossEntropyLoss(weight=WEIGHT)),
    "class weights and smoothing": am(loss=nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1)),
    "label smoothing": am(loss=nn.CrossEntropyLoss(label_smoothing=0.2)),
    "probabilities": am(y=lambda: numbers(20, 4, seed=5).softmax(1)),
}
"""Those that draw no random numbers in a step."""


def on(model: Callable[[], nn.Module], name: str, y: Callable[[], Tensor] = lambda: points()[1], **options: Any) -> Any:
    """A registered method on another net; options as in `am`."""
    w = options.pop("sample_weight", None)

    def make() -> Case:
        torch.manual_seed(3)
        more = {} if w is None else {"sample_weight": w}
        return Case(create(name, model().to(F64), **options), batches(points()[0], y(), **more))

    return make


for _name in ("adam", "predictive-coding", "am-mem", "am-mem-fitted", "am-adam-offline"):
    THREADS[f"{_name} with batch norm"] = on(normalised, _name)
for _name in ("adam", "straight-through", "predictive-coding", "pc-alm", "proxprop", "dtp"):
    _options: dict[str, Any] = {"noise": 0.0} if _name == "dtp" else {}
    THREADS[f"{_name} with ignored labels"] = on(
        mlp, _name, lambda: FIRST_RANK_ONLY, loss=nn.CrossEntropyLoss(weight=WEIGHT), **_options
    )
THREADS["adam with labels ignored by a loss without weights"] = on(mlp, "adam", lambda: FIRST_RANK_ONLY)
THREADS["adam with sample weights"] = on(mlp, "adam", sample_weight=weights(), loss=nn.CrossEntropyLoss())
THREADS["proxprop with wide layers"] = on(lambda: models.mlp(6, (30, 20), 4), "proxprop")

PROCESSES: dict[str, Callable[[], Case]] = {
    **{name: by_name(name) for name in NAMES},
    "am-adam with dropout": on(dropped, "am-adam"),
    "adam with dropout": on(dropped, "adam"),
    "predictive-coding with dropout": on(dropped, "predictive-coding"),
    "adam, module with batch norm and dropout": on(uses_autograd, "adam"),
    "am-adam, module with batch norm and dropout": on(uses_autograd, "am-adam"),
    "am-adam with batch norm": on(normalised, "am-adam"),
}


def train(case: Case, method: Any, epochs: int = 2) -> list[Tensor]:
    """What comes of training: the model, the method's state, and all metrics of all steps."""
    seen = []
    for _ in range(epochs):
        for x, y, how in case.batches:
            metrics = method.step(x, y, **how)
            seen.append(float(metrics.loss))
            if hasattr(metrics, "objective"):
                seen += [metrics.objective, *metrics.residuals, *metrics.movements]
        method.end_epoch()
    state = [t for t in pytree.tree_leaves(method.state_dict()) if isinstance(t, Tensor)]
    return [*(t.detach().clone() for t in [*method.model.state_dict().values(), *state]), torch.tensor(seen, dtype=F64)]


def far(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference, over one plus the size of the number."""
    assert [t.shape for t in found] == [t.shape for t in expected]
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(found, expected, strict=True) if a.numel()]
    return max(float(((a - b).abs() / (1 + b.abs())).nan_to_num(nan=torch.inf).max()) for a, b in pairs)
