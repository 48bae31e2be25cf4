"""The local weight rules: every block takes gradient steps on its own small problem (Algorithm 3, without memory).

The gradients are exact and local; what is done with them is left to torch's optimizers. These act on each parameter by
itself, so one optimizer over all blocks is the same as one for each, and all blocks move at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Params, Saved
from altmin.chain import Chain, Series
from altmin.codes.gradient import Local
from altmin.codes.linesearch import Mu, each, scaled
from altmin.fusing import fusible

Totals = Sequence[float] | Tensor
OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]


class Gathered(NamedTuple):
    """Of one block, summed over samples: J^T force for each parameter, and the term's values."""

    grads: list[Tensor]
    value: Any
    samples: int
    size: int | None

    def __add__(self, other: "Gathered") -> "Gathered":  # type: ignore[override]
        grads = [a + b for a, b in zip(self.grads, other.grads, strict=True)]
        return Gathered(grads, self.value + other.value, self.samples + other.samples, self.size)


class LocalOptimizer:
    """Any torch optimizer on the local problems.

    factory: groups of parameters -> optimizer. lr: one for all blocks, or a sequence with one for each. steps: inner
    steps per mini-batch. l1: weight of |W|_1, by a proximal step after each. normalise: bring every hidden block's
    residual to unit size first. Adam, which ignores the scale of gradients, then learns at any depth, where residuals
    would fall below its epsilon; a rule that heeds the scale is better left with the gradient of f.
    """

    def __init__(
        self,
        factory: OptimizerFactory,
        lr: float | Sequence[float],
        steps: int = 1,
        l1: float = 0.0,
        normalise: bool = False,
    ):
        for rate in lr if isinstance(lr, Sequence) else [lr]:
            if not rate >= 0:
                raise ValueError(f"a learning rate must be at least 0, given {rate!r}")
        if steps < 1:
            raise ValueError(f"weights need at least one step per mini-batch, given steps={steps}")
        self.factory, self.lr, self.steps, self.l1, self.normalise = factory, lr, steps, l1, normalise
        self.gathered: dict[int, Gathered] = {}
        self._constants: dict[tuple[int | None, ...], Tensor] = {}

    def bind(self, chain: Chain, blocks: Sequence[int]) -> None:
        """Takes charge of the given blocks of a chain."""
        self.chain, self.theta, self.blocks = chain, chain.parameters(), tuple(blocks)
        self._sizes = [sum(p.numel() for p in block) for block in self.theta]
        rates = list(self.lr) if isinstance(self.lr, Sequence) else [self.lr] * len(blocks)
        if len(rates) != len(blocks):
            raise ValueError(f"lr has {len(rates)} entries for {len(blocks)} blocks; give one for each, or one for all")
        groups: dict[tuple[tuple[str, float], ...], list[Tensor]] = {}
        for l, rate in zip(blocks, rates, strict=True):
            trained = [p for p in self.theta[l] if p.requires_grad]
            if trained:
                groups.setdefault((("lr", rate), *self.options(l).items()), []).extend(trained)
        kept = [{"params": group, **dict(options)} for options, group in groups.items()]
        self.optimizer = self.factory(kept or [{"params": [torch.zeros(0, requires_grad=True)], "lr": 0.0}])

    def options(self, l: int) -> dict[str, float]:
        """What the optimizer is told of block l besides its rate."""
        return {}

    def update(self, problems: list[Local], totals: Totals, mu: Mu) -> None:
        """One mini-batch: `steps` steps on each problem, which it uses up. totals: the sums of their values."""
        for left in reversed(range(self.steps)):
            old = {l: [p.clone() for p in self.theta[l]] for l in self.blocks} if left else {}
            for l, grads in self.gradients(problems, totals, mu, use_up=not left):
                self._set_grads(l, grads)
            self._step()
            if left:
                problems, totals = self.after(problems, old)

    def gradients(
        self, problems: list[Local], totals: Totals, mu: Mu, use_up: bool = False
    ) -> Iterator[tuple[int, Sequence[Tensor]]]:
        """What the optimizer gets for each block, from the last to the first."""
        scales = self.scales(problems, totals, mu)
        for l in reversed(self.blocks):
            problem = problems.pop(l) if use_up else problems[l]  # its last use lets go of it
            yield l, self.grads(l, problem, scales[l])

    def after(self, problems: Sequence[Local], old: Mapping[int, Params]) -> tuple[list[Local], Tensor]:
        """The problems once weights are no longer the old ones, and the sums of their values."""
        problems = [problem.plain() for problem in problems]
        for l, p in old.items():
            change, core = _change(self.chain.blocks[l].core, p, self.theta[l], problems[l].core)
            problems[l] = problems[l].after(change * problems[l].above.scale, core)
        return problems, torch.stack([p.at.values.sum() for p in problems])

    def gather(self, problems: Sequence[Local], totals: Totals, mu: Mu) -> None:
        """Adds a part of a mini-batch too large to hold; `apply` then makes one step for the whole."""
        for l in self.blocks:
            true = 1 / problems[l].above.scale
            grads = self.grads(l, problems[l], true)
            part = Gathered(grads, totals[l] * float(true) ** 2, len(problems[l].at.force), problems[l].size)
            self.gathered[l] = self.gathered[l] + part if l in self.gathered else part

    def apply(self, mu: Mu) -> None:
        if self.blocks and not self.gathered:
            raise RuntimeError("nothing has been gathered to apply; call gather(x, y) first")
        for l, (grads, value, samples, size) in self.gathered.items():
            tiny = torch.finfo(grads[0].dtype).tiny
            normal = size is not None and self.normalise
            scale = _inverse(value, samples * (size or 1), tiny, samples) if normal else self._scale(size, samples, mu)
            self._set_grads(l, [g * scale for g in grads])
        self._step()
        self.gathered = {}

    def grads(self, l: int, problem: Local, scale: Tensor | float) -> list[Tensor]:
        """scale times J^T force, the factor put where there is less to multiply."""
        series, p, force, spared = self.chain.blocks[l].core, self.theta[l], problem.at.force, problem.above.spared
        if spared is not None:
            return series.grads(p, problem.core, _weighted(force, spared, scale))
        if 4 * self._sizes[l] < force.numel():
            grads = series.grads(p, problem.core, force)
            return [grad.mul_(scale) for grad in grads]
        return series.grads(p, problem.core, scaled(force, scale))

    def _set_grads(self, l: int, grads: Sequence[Tensor]) -> None:
        for p, grad in zip(self.theta[l], grads, strict=True):
            # fused kernels go through memory as it lies, and take a gradient to lie as its weight does
            if p.requires_grad:
                p.grad = grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)

    def scales(self, problems: Sequence[Local], totals: Totals, mu: Mu) -> list[Any]:
        """For each block the factor from the sum over samples of J^T force to the gradient of its term."""
        samples = problems[0].at.force.shape[0]
        entries = tuple(p.size and samples * p.size for p in problems)
        if not self.normalise:
            return [self._scale(p.size, samples, mu) / p.above.scale for p in problems]
        tiny = torch.finfo(problems[0].at.force.dtype).tiny
        if isinstance(totals, Tensor):  # all blocks at once
            if entries not in self._constants:
                sizes = [float(n or 1) for n in entries]
                self._constants[entries] = torch.tensor(sizes, dtype=totals.dtype, device=totals.device)
            inverse: Any = _inverse(totals, self._constants[entries], tiny, samples).unbind()
        else:
            inverse = [n and _inverse(total, n, tiny, samples) for n, total in zip(entries, totals, strict=True)]
        return [-1 / samples if n is None else each for n, each in zip(entries, inverse, strict=True)]

    def _scale(self, size: int | None, samples: int, mu: Mu) -> Any:
        """The same for one block with the gradient of f itself. The output block has no size."""
        return -1 / samples if size is None else -2 * mu / samples

    def _step(self) -> None:
        advance = self.optimizer.update if isinstance(self.optimizer, FusedAdam) else self.optimizer.step
        advance()
        if self.l1:
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    if p.ndim > 1:
                        p.copy_(p.sign() * (p.abs() - group["lr"] * self.l1).clamp_min(0))

    def state_dict(self) -> dict[str, Any]:
        gathered = {l: g._asdict() for l, g in self.gathered.items()}
        return {"optimizer": self.optimizer.state_dict(), "gathered": gathered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.gathered = {int(l): Gathered(**g) for l, g in state["gathered"].items()}


class FusedAdam(torch.optim.AdamW):
    """torch's AdamW and its fused kernel, without the bookkeeping that costs small nets more than the kernel does.

    State, options and schedulers are AdamW's own.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.update()

    def update(self) -> None:
        """`step` without the hooks that torch wraps around that name; a scheduler is told all the same."""
        self._opt_called = True
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:  # all is frozen
                continue
            states = [self.state[p] or self._begin(p, group) for p in params]
            steps = [s["step"] for s in states]
            for step in {id(step): step for step in steps}.values():  # as a rule one for all
                step += 1
            torch._fused_adamw_(
                params,
                [p.grad for p in params],
                [s["exp_avg"] for s in states],
                [s["exp_avg_sq"] for s in states],
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        begun = [self.state[q]["step"] for q in group["params"] if self.state[q]]
        shared = begun[0] if begun and not begun[0].any() else torch.zeros((), dtype=torch.float32, device=p.device)
        self.state[p] = {
            "step": shared,
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
        return self.state[p]


class LocalAdam(LocalOptimizer):
    """AM-Adam's rule. The weight decay is the decoupled one of AdamW, since the gradients' scale is not the loss's.

    eps: None is 0.01 for blocks with residuals of unit size, where it has a meaning: weights that see almost no signal
    (pixels at the border) are not blown up to full steps. Elsewhere, at the output too, it is the usual 1e-8.
    """

    def __init__(
        self,
        lr: float | Sequence[float] = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float | None = None,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        steps: int = 1,
        normalise: bool = True,
    ):
        self.eps = eps

        def factory(groups: Iterable[Any]) -> torch.optim.Optimizer:
            return FusedAdam(groups, betas=betas, weight_decay=weight_decay, fused=True)

        super().__init__(factory, lr, steps, l1, normalise)

    def options(self, l: int) -> dict[str, float]:
        unit_size = self.normalise and l < len(self.chain) - 1
        return {"eps": self.eps if self.eps is not None else 1e-2 if unit_size else 1e-8}


class LocalSGD(LocalOptimizer):
    """AM-SGD's rule: plain gradient steps on f, with momentum if wanted."""

    def __init__(
        self,
        lr: float | Sequence[float] = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        steps: int = 1,
        normalise: bool = False,
    ):
        def factory(groups: Iterable[Any]) -> torch.optim.Optimizer:
            return torch.optim.SGD(groups, momentum=momentum, weight_decay=weight_decay, fused=True)

        super().__init__(factory, lr, steps, l1, normalise)


@fusible
def _inverse(total: Any, entries: Any, tiny: float, samples: int) -> Any:
    """Minus one over the root of a mean square, per sample; bounded, so that nothing times it is nothing."""
    return (total / entries + tiny) ** -0.5 / -samples


@fusible
def _weighted(force: Tensor, spared: Tensor, scale: Any) -> Tensor:
    return each(spared * scale, force)


def _change(core: Series, old: Params, new: Params, saved: list[Saved]) -> tuple[Tensor, list[Saved]]:
    """How new parameters change the output, without cancellation where it is linear in them; and the memory then."""
    if core.affine:
        return core.replay([b - a for a, b in zip(old, new, strict=True)], saved)[0], saved
    output, changed = core.replay(new, saved)
    return output - core.replay(old, saved)[0], changed
