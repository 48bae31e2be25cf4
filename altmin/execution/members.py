"""One member's step as a pure function of its parameters, its rule's state, mu and a mini-batch: what `torch.func.vmap`
turns into the step of an ensemble.

The algorithm is that of `AltMin` and `Backprop` themselves: a copy of the first member is lent each member's parameters
and options, and asked for its codes, problems and gradients.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus import products
from altmin.codes.linesearch import Doubts
from altmin.execution.sheets import Row, Sheet
from altmin.methods.backprop import Backprop
from altmin.trainer import AltMin
from altmin.weights.memory import CoActivationMemory, Memory

State = dict[str, Any]
"""Of one member, or of all with one more dimension: "rows" (of every sheet), "buffers", "step", and for AltMin "mu"
and "memories"."""
Options = dict[str, Any]
"""Numbers that differ between members: "sheets" (of every sheet), "own", and for AltMin those of the penalty."""
Outcome = dict[str, Tensor]
"""loss, objective, whether all is finite, and whether the step is doubtful."""


class Member:
    """What AltMin and Backprop have in common. `varied` names the options that differ from member to member, as the
    object of the copy that has them and its attribute."""

    def __init__(self, first: Any):
        self.twin: Any = copy.deepcopy(first)
        self.buffers = [
            (module, name)
            for module in self.twin.model.modules()
            for name in module._buffers
            if module._buffers[name] is not None
        ]
        self.layers = list(self.twin.model.modules())
        self.places = {id(p): place for place, p in enumerate(self.twin.model.parameters())}
        self.sheets: list[Sheet] = []

    def follow(self, model: nn.Module) -> None:
        """Puts every layer into the mode, training or not, in which it is in the first member."""
        for own, layer in zip(self.layers, model.modules(), strict=True):
            own.training = layer.training

    def options(self, method: Any) -> dict[str, float]:
        """The method's own numbers that may differ, by name."""
        return {}

    def parameters(self, rows: Sequence[Row]) -> dict[int, Tensor]:
        """By their places."""
        return {
            place: part
            for sheet, row in zip(self.sheets, rows, strict=True)
            for place, part in zip(sheet.places, sheet.parts(row["weights"]), strict=True)
        }

    def lend_buffers(self, buffers: Sequence[Tensor]) -> None:
        for (module, name), value in zip(self.buffers, buffers, strict=True):
            module._buffers[name] = value

    def stepped(self, rows: Sequence[Row], grads: Mapping[int, Tensor], options: Options, step: Tensor) -> list[Row]:
        """All rows after one step of their rules."""
        return [
            sheet.update(row, grads, varied, step) if sheet.rule else row
            for sheet, row, varied in zip(self.sheets, rows, options["sheets"], strict=True)
        ]

    def step(self, state: State, options: Options, x: Tensor, y: Tensor, thorough: bool) -> tuple[State, Outcome]:
        raise NotImplementedError


class AltMinMember(Member):
    """Algorithm 1 for one member; see `AltMin.step`."""

    def __init__(self, first: AltMin):
        super().__init__(first)
        rule = self.twin.weights
        self.memory = rule if isinstance(rule, CoActivationMemory) else None
        self.rest = rule.rest if isinstance(rule, CoActivationMemory) else rule
        self.theta = [[self.places[id(p)] for p in block] for block in self.twin.theta]
        self.fitted = {place: l for l in (self.memory.blocks if self.memory else ()) for place in self.theta[l]}

    def options(self, method: AltMin) -> dict[str, float]:
        codes: Any = method.codes
        own = {"momentum of codes": codes.momentum}
        if codes.lr != "exact":
            own["lr of codes"] = codes.lr
        if isinstance(method.weights, CoActivationMemory):
            own |= {f"{name} of weights": getattr(method.weights, name) for name in ("forget", "damping")}
            if method.weights.rate is not None:
                own["rate of weights"] = method.weights.rate
        return own

    def lend(self, rows: Sequence[Row]) -> list[list[Tensor]]:
        parameters = self.parameters(rows)
        theta = [[parameters[place] for place in block] for block in self.theta]
        for user in (self.twin, self.twin.weights, self.rest):
            user.theta = theta
        return theta

    def step(self, state: State, options: Options, x: Tensor, y: Tensor, thorough: bool) -> tuple[State, Outcome]:
        doubts, singular = Doubts(wait=False, thorough=thorough), Doubts(wait=False)
        mu, rows, step = state["mu"].to(x.dtype), state["rows"], state["step"]
        buffers = [value.clone() for value in state["buffers"]]
        self.lend_buffers(buffers)
        for name, value in options["own"].items():
            attribute, _, owner = name.partition(" of ")
            setattr(getattr(self.twin, owner), attribute, value.to(x.dtype))
        theta = self.lend(rows)
        found = self.twin.attempt(x, y, mu, doubts)
        sums = found.sums()
        totals, loss = sums[:-1], sums[-1] / x.shape[0]
        objective = self.objective(totals, [p.above.scale for p in found.problems], mu) / x.shape[0]
        for m, saved in found.traces:
            m.commit(saved)
        problems, memories = found.problems, {}
        parts: dict[int, Tensor] = {}
        for l in self.memory.blocks if self.memory else ():
            assert self.memory is not None
            memory = Memory(*state["memories"][l]).fade(self.memory.forget) + self.memory.recalled(l, problems, mu)
            memories[l] = tuple(memory)
            parts |= dict(zip(self.theta[l], self.memory.fitted(theta[l], memory, singular), strict=True))
        for left in reversed(range(self.rest.steps)):
            old, step = {l: theta[l] for l in self.rest.blocks}, step + 1
            grads = {
                place: grad
                for l, block in self.rest.gradients(problems, totals, mu, use_up=not left)
                for place, grad in zip(self.theta[l], block, strict=True)
            }
            rows = self.stepped(rows, grads, options, step)
            if left:
                theta = self.lend(rows)
                problems, totals = self.rest.after(problems, old)
        for n, sheet in enumerate(self.sheets):
            if sheet.places[0] in parts:
                rows[n] = {"weights": torch.cat([parts[place].reshape(-1) for place in sheet.places])}
        mu = torch.minimum(state["mu"] + options["increment"], options["maximum"])
        new = {"rows": rows, "buffers": buffers, "step": step, "mu": mu, "memories": memories}
        return new, _outcome(loss, objective, found.first_code, rows, [doubts.found(), singular.found()])

    def objective(self, totals: Tensor, scales: Sequence[Any], mu: Tensor) -> Tensor:
        """f of the whole mini-batch; offsets may be magnified, f is not."""
        if all(isinstance(scale, float) and scale == 1 for scale in scales):
            return totals[-1] + mu * totals[:-1].sum()
        true = [total / scale**2 for total, scale in zip(totals.unbind(), scales, strict=True)]
        return true[-1] + mu * sum(true[:-1])

    def release(self) -> None:
        """Lets go of what was lent, so that nothing of a past step is kept."""
        self.twin.theta = self.twin.weights.theta = self.rest.theta = None


class BackpropMember(Member):
    """`loss.backward()` and a step of the optimizer for one member; see `Backprop.step`."""

    fitted: Mapping[int, int] = {}

    def __init__(self, first: Backprop):
        super().__init__(first)
        self.names = [name for name, _ in self.twin.model.named_parameters()]
        paths = {id(m): path for path, m in self.twin.model.named_modules()}
        self.buffer_names = [f"{paths[id(m)]}.{name}".lstrip(".") for m, name in self.buffers]

    def step(self, state: State, options: Options, x: Tensor, y: Tensor, thorough: bool) -> tuple[State, Outcome]:
        rows, step = state["rows"], state["step"] + 1
        parameters, twin = self.parameters(rows), self.twin
        trained = {place for sheet in self.sheets if sheet.rule for place in sheet.places}

        def loss(wanted: dict[int, Tensor]) -> tuple[Tensor, list[Tensor]]:
            buffers = [value.clone() for value in state["buffers"]]
            given = {self.names[place]: p for place, p in (parameters | wanted).items()}
            own = given | dict(zip(self.buffer_names, buffers, strict=True))
            with products.autocast(x):
                return twin.loss(torch.func.functional_call(twin.model, own, (x,)), y), buffers

        wanted = {place: parameters[place] for place in trained}
        grads, (value, buffers) = torch.func.grad_and_value(loss, has_aux=True)(wanted)
        rows = self.stepped(rows, grads, options, step)
        new = {"rows": rows, "buffers": buffers, "step": step}
        return new, _outcome(value, value, value, rows, [])

    def release(self) -> None:
        pass


def _outcome(
    loss: Tensor, objective: Tensor, code: Tensor, rows: Sequence[Row], doubts: Sequence[Tensor | None]
) -> Outcome:
    """One question for all that must be finite; a sum of such overflows only where all is lost."""
    finite = sum((row["weights"].sum() for row in rows), loss + objective + code).isfinite()
    kept = [doubt for doubt in doubts if doubt is not None]
    doubtful = sum((doubt.any() for doubt in kept), torch.zeros_like(finite))
    return {"loss": loss, "objective": objective, "finite": finite, "doubtful": doubtful}


def member_of(first: AltMin | Backprop) -> AltMinMember | BackpropMember:
    return AltMinMember(first) if isinstance(first, AltMin) else BackpropMember(first)
