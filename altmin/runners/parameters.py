"""The parameters of many members in matrices: those that are updated alike side by side, one row for each member."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from altmin.core.weights.adam_sgd import Row, coefficients, stepped

Parameters = Sequence[nn.Parameter]
"""All of one model, in its order."""


class FlatGroup:
    """Parameters that are updated alike, and have become views into their rows.

    kind: "adam", "adamw" or "sgd"; "fitted" by a rule without an optimizer, or "frozen". places: their positions among
    the model's parameters. rows: weights and moments, (members, entries). options: (members,); l1, weight decay and
    momentum unless they are zero for all.
    """

    def __init__(
        self, kind: str, places: list[int], models: Sequence[Parameters], options: Sequence[dict[str, float]] = ()
    ):
        self.kind, self.places, self.shapes = kind, places, [models[0][place].shape for place in places]
        self.optimized = kind not in ("fitted", "frozen")
        weights = torch.stack([self.flat([own[place].detach() for place in places]) for own in models])
        columns = {name: [own[name] for own in options] for name in (options[0] if options else ())}
        self.options = {
            name: torch.tensor(column, dtype=torch.float64, device=weights.device)
            for name, column in columns.items()
            if any(column) or name in ("lr", "eps", "beta1", "beta2")
        }
        moments = {"adam": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",) * ("momentum" in self.options)}
        self.moments = moments.get(kind.removesuffix("w"), ())
        self.rows = {"weights": weights, **{name: torch.zeros_like(weights) for name in self.moments}}
        for own, row in zip(models, weights, strict=True):
            for place, part in zip(places, self.parts(row), strict=True):
                own[place].data = part

    def parts(self, row: Tensor) -> list[Tensor]:
        """Return one member's row as parameters."""
        sizes = [shape.numel() for shape in self.shapes]
        return [part.view(shape) for part, shape in zip(row.split(sizes), self.shapes, strict=True)]

    def flat(self, parts: Sequence[Tensor]) -> Tensor:
        """Return one member's tensors like the parameters as one row."""
        flat = [part.reshape(-1) for part in parts]
        if torch.compiler.is_compiling():  # of eight parts or fewer a kernel would choose one anew for each entry
            flat = [piece for part in flat for piece in part.chunk(1 + 8 // len(flat), -1)]
        return torch.cat(flat)

    def stepped(self, row: Row, grads: Sequence[Tensor], options: Mapping[str, Tensor], step: Tensor) -> Row:
        """Return one member's row after its optimizer's `step`-th step, from 1, with the member's options."""
        return stepped(self.kind, row, self.flat(grads), coefficients(options, step, row["weights"].dtype))

    def read(self, i: int, own: Parameters, optimizer: Optimizer) -> float:
        """Copy member i's rate and moments from its optimizer; return how many steps it has taken."""
        self.options["lr"][i] = float(_table(optimizer)[id(own[self.places[0]])]["lr"])
        states = [optimizer.state.get(own[place], {}) for place in self.places]
        for name in self.moments:
            for state, part in zip(states, self.parts(self.rows[name][i]), strict=True):
                part.zero_() if state.get(name) is None else part.copy_(state[name])
        return max(float(state.get("step", 0.0)) for state in states)

    def write(self, i: int, own: Parameters, optimizer: Optimizer, step: float) -> None:
        """Bring member i's optimizer up to date: its moments become views, its rate and steps are set."""
        table, moments = _table(optimizer), {name: self.parts(self.rows[name][i]) for name in self.moments}
        for n, p in enumerate(own[place] for place in self.places):
            group = table[id(p)]
            group["lr"] = self.options["lr"][i].item()
            if moments and step and group.get("momentum") != 0:
                optimizer.state[p] = {name: parts[n] for name, parts in moments.items()}
                if self.kind != "sgd":
                    device = p.device if group.get("fused") or group.get("capturable") else "cpu"
                    optimizer.state[p]["step"] = torch.tensor(step, dtype=torch.float32, device=device)


def flat_groups(
    models: Sequence[Parameters], optimizers: Sequence[Optimizer], l1s: Sequence[float], fitted: Mapping[int, int]
) -> list[FlatGroup]:
    """Return the groups of the members' parameters.

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
            groups = [table[id(model[place])] for table, model in zip(tables, models, strict=True)]
            options = (_options(group, l1 * (p.ndim > 1)) for group, l1 in zip(groups, l1s, strict=True))
            adam = "adamw" if groups[0].get("decoupled_weight_decay") else "adam"
            key = ("sgd" if isinstance(optimizers[0], SGD) else adam, *options)
        found.setdefault(key, []).append(place)
    return [
        FlatGroup(key[0], places, models, [dict(own) for own in key[1:] if isinstance(own, tuple)])
        for key, places in found.items()
    ]


def _table(optimizer: Optimizer | None) -> dict[int, dict[str, Any]]:
    """Return the optimizer's group of every parameter, by the parameter's id."""
    groups = [] if optimizer is None else optimizer.param_groups
    return {id(p): group for group in groups for p in group["params"]}


def _options(group: Mapping[str, Any], l1: float) -> tuple[tuple[str, float], ...]:
    """Return the numbers of an optimizer's group that its formula reads, with their names."""
    betas = dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False))
    known = {name: group[name] for name in ("lr", "weight_decay", "eps", "momentum") if name in group}
    return tuple((name, float(value)) for name, value in {**known, **betas, "l1": l1}.items())
