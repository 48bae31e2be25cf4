"""The parameters of many members in matrices: those that are updated alike side by side, one row for each member."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from altmin.core.weights.adam_sgd import Row, stepped

Parameters = Sequence[nn.Parameter]
"""All of one model, in its order."""


class FlatGroup:
    """Parameters that are updated alike, and have become views into their rows.

    kind: "adam", "adamw" or "sgd"; "fitted" by a rule without an optimizer, or "frozen". places: their positions among
    the model's parameters. rows: weights and moments, (members, entries). options: (members,), unless all are zero.
    """

    def __init__(
        self, kind: str, places: list[int], models: Sequence[Parameters], options: Sequence[dict[str, float]] = ()
    ):
        self.kind, self.places, self.shapes = kind, places, [models[0][place].shape for place in places]
        weights = torch.stack([self.flat([own[place].detach() for place in places]) for own in models])
        columns = {name: [own[name] for own in options] for name in (options[0] if options else ())}
        self.options = {
            name: torch.tensor(column, dtype=torch.float64, device=weights.device)
            for name, column in columns.items()
            if any(column) or name in ("lr", "eps")
        }
        moments = {"adam": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",) * ("momentum" in self.options)}
        self.moments = moments.get(kind.removesuffix("w"), ())
        self.rows = {"weights": weights, **{name: torch.zeros_like(weights) for name in self.moments}}
        for own, row in zip(models, weights, strict=True):
            for place, part in zip(places, self.parts(row), strict=True):
                own[place].data = part

    @property
    def optimized(self) -> bool:
        return self.kind not in ("fitted", "frozen")

    def parts(self, row: Tensor) -> list[Tensor]:
        """One member's row as parameters."""
        sizes = [shape.numel() for shape in self.shapes]
        return [part.view(shape) for part, shape in zip(row.split(sizes), self.shapes, strict=True)]

    def flat(self, parts: Sequence[Tensor]) -> Tensor:
        """Tensors like the parameters as one row; with a dimension more in front, as all rows."""
        shaped = zip(parts, self.shapes, strict=True)
        flat = [part.reshape(*part.shape[: part.ndim - len(shape)], -1) for part, shape in shaped]
        if torch.compiler.is_compiling():  # of eight parts or fewer a kernel would choose one anew for each entry
            flat = [piece for part in flat for piece in part.chunk(1 + 8 // len(flat), -1)]
        return torch.cat(flat, -1)

    def stepped(self, row: Row, grads: Sequence[Tensor], c: Mapping[str, Tensor]) -> Row:
        """One member's row, or all rows, after a step of the optimizer with its `coefficients` c."""
        return stepped(self.kind, row, self.flat(grads), c)

    def read(self, i: int, own: Parameters, optimizer: Optimizer) -> float:
        """Copies member i's rate and moments from its optimizer; returns how many steps it has taken."""
        self.options["lr"][i] = float(_table(optimizer)[id(own[self.places[0]])]["lr"])
        states = [optimizer.state.get(own[place], {}) for place in self.places]
        for name in self.moments:
            for state, part in zip(states, self.parts(self.rows[name][i]), strict=True):
                part.zero_() if state.get(name) is None else part.copy_(state[name])
        return max(float(state.get("step", 0.0)) for state in states)

    def write(self, i: int, own: Parameters, optimizer: Optimizer, step: float) -> None:
        """Brings member i's optimizer up to date: its moments become views, its rate and steps are set."""
        table, moments = _table(optimizer), {name: self.parts(self.rows[name][i]) for name in self.moments}
        for n, p in enumerate(own[place] for place in self.places):
            group = table[id(p)]
            group["lr"] = self.options["lr"][i].item()
            if moments and step and group.get("momentum") != 0:
                optimizer.state[p] = {name: parts[n] for name, parts in moments.items()}
                if self.kind != "sgd":
                    on_device = group.get("fused") or group.get("capturable")
                    optimizer.state[p]["step"] = torch.tensor(
                        step, dtype=torch.float32, device=p.device if on_device else "cpu"
                    )


def flat_groups(
    models: Sequence[Parameters], optimizers: Sequence[Optimizer], l1s: Sequence[float], fitted: Mapping[int, int]
) -> list[FlatGroup]:
    """The groups of the members' parameters.

    l1s: of every member's weight rule; biases have none. fitted: the places of parameters whose rule is not an
    optimizer, and the number of their block; such a block is a group."""
    found: dict[Any, list[int]] = {}
    tables = [_table(optimizer) for optimizer in optimizers]
    for place, p in enumerate(models[0]):
        if place in fitted:
            key: Any = ("fitted", fitted[place])
        elif id(p) not in tables[0] or not p.requires_grad:
            key = ("frozen",)
        else:
            own = (
                _options(table[id(model[place])], l1 * (p.ndim > 1))
                for table, model, l1 in zip(tables, models, l1s, strict=True)
            )
            key = (_kind(optimizers[0]), *own)
        found.setdefault(key, []).append(place)
    return [
        FlatGroup(key[0], places, models, [dict(own) for own in key[1:] if isinstance(own, tuple)])
        for key, places in found.items()
    ]


def _table(optimizer: Optimizer | None) -> dict[int, dict[str, Any]]:
    """The optimizer's group of every parameter, by the parameter's id."""
    groups = [] if optimizer is None else optimizer.param_groups
    return {id(p): group for group in groups for p in group["params"]}


def _kind(optimizer: Optimizer) -> str:
    if isinstance(optimizer, SGD):
        return "sgd"
    return "adamw" if optimizer.param_groups[0].get("decoupled_weight_decay") else "adam"


def _options(group: Mapping[str, Any], l1: float) -> tuple[tuple[str, float], ...]:
    """The numbers of an optimizer's group that its formula reads, with their names."""
    betas = dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False))
    known = {name: group[name] for name in ("lr", "weight_decay", "eps", "momentum") if name in group}
    return tuple((name, float(value)) for name, value in {**known, **betas, "l1": l1}.items())
