"""The parameters of many members as matrices: parameters that are treated alike side by side, a row for each member."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from altmin.execution.rules import adamw, sgd, shrunk

Row = dict[str, Tensor]
"""Of one member: its weights under "weights", beside them the moments under the names that torch's optimizers use."""


@dataclass
class Sheet:
    """places: which of a model's parameters. rule: the optimizer's, None where it does not train them. rows: weights
    and moments, all (members, entries). fixed: options that are the same in all members; varied: one for each."""

    places: list[int]
    shapes: list[torch.Size]
    rule: str | None
    rows: Row
    fixed: dict[str, float] = field(default_factory=dict)
    varied: dict[str, Tensor] = field(default_factory=dict)

    def parts(self, row: Tensor) -> list[Tensor]:
        """A row as parameters."""
        sizes = [shape.numel() for shape in self.shapes]
        return [part.view(shape) for part, shape in zip(row.split(sizes), self.shapes, strict=True)]

    def update(self, row: Row, grads: Mapping[int, Tensor], varied: Mapping[str, Tensor], step: Tensor) -> Row:
        """One member's row after a step of its rule, the `step`-th from 1."""
        o: dict[str, Any] = {**self.fixed, **varied}
        p, g = row["weights"], torch.cat([grads[place].reshape(-1) for place in self.places])
        new = {}
        if self.rule == "sgd":
            velocity = row.get("momentum_buffer", torch.zeros_like(p))
            p, velocity = sgd(p, g, velocity, o["lr"], o["momentum"], o["weight_decay"])
            new = {"momentum_buffer": velocity} if "momentum_buffer" in row else {}
        else:
            m, v, decay = row["exp_avg"], row["exp_avg_sq"], o["weight_decay"]
            if self.rule == "adam" and "weight_decay" in self.adds:  # a part of the gradient, not of the step
                g, decay = g + (decay.to(p.dtype) if isinstance(decay, Tensor) else decay) * p, 0.0
            p, m, v = adamw(p, g, m, v, step, o["lr"], o["beta1"], o["beta2"], o["eps"], decay)
            new = {"exp_avg": m, "exp_avg_sq": v}
        if self.adds & {"l1"}:
            p = shrunk(p, o["lr"] * o["l1"])
        return {"weights": p, **new}

    @property
    def adds(self) -> set[str]:
        """Options that are not zero in all members."""
        return {name for name, value in self.fixed.items() if value} | set(self.varied)


def sheets(
    models: Sequence[Sequence[nn.Parameter]],
    optimizers: Sequence[Optimizer],
    l1s: Sequence[float],
    fitted: Mapping[int, int],
) -> list[Sheet]:
    """The sheets of the models' parameters, which become views into them. fitted: parameters that a memory fits, and
    the number of their block; one sheet for each such block, one for what is frozen, and one for all that the
    optimizers treat alike."""
    found: dict[Any, list[int]] = {}
    tables = [{id(p): group for group in o.param_groups for p in group["params"]} for o in optimizers]
    for place, p in enumerate(models[0]):
        if place in fitted:
            key: Any = ("memory", fitted[place])
        elif id(p) not in tables[0] or not p.requires_grad:
            key = ("frozen",)
        else:
            key = tuple(
                tuple(_options(table[id(own[place])], l1 if p.ndim > 1 else 0.0).items())
                for own, table, l1 in zip(models, tables, l1s, strict=True)
            )
        found.setdefault(key, []).append(place)
    made = [_sheet(key, places, models, optimizers[0]) for key, places in found.items()]
    for sheet in made:
        for i, own in enumerate(models):
            for place, part in zip(sheet.places, sheet.parts(sheet.rows["weights"][i]), strict=True):
                own[place].data = part
    return made


def _sheet(key: Any, places: list[int], models: Sequence[Sequence[nn.Parameter]], optimizer: Optimizer) -> Sheet:
    shapes = [models[0][place].shape for place in places]
    weights = torch.stack([torch.cat([own[place].detach().reshape(-1) for place in places]) for own in models])
    if not isinstance(key[0], tuple):
        return Sheet(places, shapes, None, {"weights": weights})
    options = [dict(each) for each in key]
    fixed = {name: value for name, value in options[0].items() if all(each[name] == value for each in options)}
    fixed.pop("lr", None)  # schedules move it
    varied = {
        name: torch.tensor([each[name] for each in options], dtype=torch.float64, device=weights.device)
        for name in options[0]
        if name not in fixed
    }
    rows = {"weights": weights, **{name: torch.zeros_like(weights) for name in _moments(optimizer, fixed, varied)}}
    return Sheet(places, shapes, rule_of(optimizer), rows, fixed, varied)


def rule_of(optimizer: Optimizer) -> str:
    """Which of the rules an optimizer follows."""
    if isinstance(optimizer, SGD):
        return "sgd"
    decoupled = isinstance(optimizer, AdamW) or optimizer.param_groups[0].get("decoupled_weight_decay")
    assert isinstance(optimizer, Adam)
    return "adamw" if decoupled else "adam"


def _moments(optimizer: Optimizer, fixed: Mapping[str, float], varied: Mapping[str, Tensor]) -> tuple[str, ...]:
    if rule_of(optimizer) != "sgd":
        return "exp_avg", "exp_avg_sq"
    return ("momentum_buffer",) if fixed.get("momentum") or "momentum" in varied else ()


def _options(group: Mapping[str, Any], l1: float) -> dict[str, float]:
    """The numbers of an optimizer's group that a rule reads."""
    known = {name: float(group[name]) for name in ("lr", "weight_decay", "eps", "momentum") if name in group}
    betas = dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False))
    return {**known, **{name: float(beta) for name, beta in betas.items()}, "l1": l1}


def read_state(sheet: Sheet, i: int, own: Sequence[nn.Parameter], optimizer: Optimizer) -> float:
    """Copies member i's moments and rate from its optimizer; returns how many steps it has taken."""
    steps = {0.0}
    sheet.varied["lr"][i] = next(
        float(group["lr"])
        for group in optimizer.param_groups
        if any(p is own[sheet.places[0]] for p in group["params"])
    )
    for name in sheet.rows.keys() - {"weights"}:
        for place, part in zip(sheet.places, sheet.parts(sheet.rows[name][i]), strict=True):
            state = optimizer.state.get(own[place], {})
            steps.add(float(state.get("step", 0.0)))
            if state.get(name) is None:
                part.zero_()
            elif state[name].data_ptr() != part.data_ptr():
                part.copy_(state[name])
    return max(steps)


def write_state(sheet: Sheet, i: int, own: Sequence[nn.Parameter], optimizer: Optimizer, step: float) -> None:
    """Makes member i's optimizer see the sheet: its moments become views, its rates and steps are set."""
    table = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    lr = sheet.varied["lr"][i].item()
    moments = {name: sheet.parts(sheet.rows[name][i]) for name in sheet.rows if name != "weights"}
    for number, place in enumerate(sheet.places):
        p, group = own[place], table[id(own[place])]
        group["lr"] = lr
        if not moments or not step or (sheet.rule == "sgd" and not group["momentum"]):
            continue
        state: dict[str, Any] = {name: parts[number] for name, parts in moments.items()}
        if sheet.rule != "sgd":
            on_device = group.get("fused") or group.get("capturable")
            state["step"] = torch.tensor(step, dtype=torch.float32, device=p.device if on_device else "cpu")
        optimizer.state[p] = state
