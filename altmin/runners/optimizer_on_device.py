"""A torch optimizer inside a captured step: its rates are read from the device, and Adam can be compiled with it."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all numbers in some floating tensors are finite; waits for their device."""
    filled = [t for t in tensors if t.numel()]
    # sums of absolute values take one kernel for many tensors; where one overflows, the largest of them decide
    return any(_finite(torch._foreach_norm(filled, order)) for order in (1, torch.inf))


def _finite(numbers: Sequence[Tensor]) -> bool:
    alike = defaultdict[tuple[torch.device, torch.dtype], list[Tensor]](list)
    for number in numbers:
        alike[number.device, number.dtype].append(number)
    return all(bool(torch.stack(group).isfinite().all()) for group in alike.values())


def _corrected(beta: float, step: Tensor) -> Tensor:
    """1 - beta**step without cancellation, for steps from 1; 1 for beta = 0."""
    return -torch.expm1(step.clamp_min(1) * math.log(beta)) if beta else torch.ones_like(step)


class OptimizerOnDevice:
    """A torch optimizer whose learning rates a captured step reads from the device, within `swapped`."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer: Any = optimizer
        self.rates: list[Tensor] = []
        for group in optimizer.param_groups:
            device = group["params"][0].device
            rate = group["lr"]
            own = isinstance(rate, Tensor) and rate.device == device
            self.rates.append(rate if own else torch.tensor(float(rate), dtype=torch.float32, device=device))
            if "capturable" in group and device.type == "cuda":
                group["capturable"] = True
            for p in group["params"]:
                if "step" in optimizer.state.get(p, {}):
                    optimizer.state[p]["step"] = optimizer.state[p]["step"].to(device)
        self.known = [group["lr"] for group in optimizer.param_groups]
        self.options, self.trained = self._options(), self._trained()
        self.places: list[int] | None = None

    @contextmanager
    def swapped(self, found_inf: Tensor | None) -> Iterator[None]:
        """Its step reads the rates on the device meanwhile, and changes nothing where found_inf is 1."""
        groups, before = self.optimizer.param_groups, [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate
        if found_inf is not None:
            self.optimizer.found_inf = found_inf
        try:
            yield
        finally:
            for group, rate in zip(groups, before, strict=True):
                group["lr"] = rate
            self.optimizer.__dict__.pop("found_inf", None)
            self.places = self._places()

    def begin_adam(self) -> None:
        """Creates the state of Adam's parameters, which `step_adam` needs."""
        self.optimizer.begin()

    def step_adam(self, grads: Mapping[Tensor, Tensor], ok: Tensor) -> None:
        """A step of Adam, by its formula instead of its kernel: compiled, it is one pass over memory on the whole
        device, where the kernel of a small net occupies a few of its processors. Nothing changes unless ok. Where a
        gradient is not finite, the second moment becomes infinite, so that the weight stays and `pull` tells.
        """
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            alike: dict[int, list[Tensor]] = {}
            for p in group["params"]:
                if p in grads and p.requires_grad:
                    alike.setdefault(id(self.optimizer.state[p]["step"]), []).append(p)
            for params in alike.values():
                self._adam(group, params, [grads[p] for p in params], rate, ok)

    def _adam(
        self, group: Mapping[str, Any], params: list[Tensor], grads: list[Tensor], rate: Tensor, ok: Tensor
    ) -> None:
        """`step_adam` of parameters that share the count of their steps, in operations on lists, of which the compiler
        makes one kernel."""
        states, (beta1, beta2), decay = [self.optimizer.state[p] for p in params], group["betas"], group["weight_decay"]
        states[0]["step"] += ok
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        step, lr, taken = (number.to(params[0].dtype) for number in (states[0]["step"], rate, ok))
        lost = [torch.where(ok & ~g.isfinite(), torch.inf, 0.0).to(g.dtype) for g in grads]
        grads = [torch.where(ok & g.isfinite(), g, 0) for g in grads]
        if decay and group["decoupled_weight_decay"]:
            torch._foreach_mul_(params, 1 - lr * decay * taken)
        elif decay:
            grads = list(torch._foreach_add(grads, torch._foreach_mul(params, decay * taken)))
        new1, new2 = (1 - beta1) * taken, (1 - beta2) * taken
        torch._foreach_mul_(means, 1 - new1)
        torch._foreach_add_(means, torch._foreach_mul(grads, new1))
        torch._foreach_mul_(squares, 1 - new2)
        torch._foreach_add_(
            squares, torch._foreach_add(torch._foreach_mul(torch._foreach_mul(grads, grads), new2), lost)
        )
        root = torch._foreach_div(torch._foreach_sqrt(squares), _corrected(beta2, step) ** 0.5)
        moved = torch._foreach_div(means, torch._foreach_add(root, group["eps"]))
        torch._foreach_sub_(params, torch._foreach_mul(moved, lr * taken / _corrected(beta1, step)))

    def tensors(self) -> list[Tensor]:
        """Parameters and state."""
        state = [t for p in self.optimizer.state.values() for t in p.values() if isinstance(t, Tensor)]
        return [*(p for group in self.optimizer.param_groups for p in group["params"]), *state]

    def push(self) -> None:
        """Copies rates that have changed to the device. ValueError if other options have, or if tensors of the model or
        of the optimizer are no longer those that were captured."""
        if self.places is not None and self._places() != self.places:
            raise ValueError(
                "weights or moments no longer lie where the captured step writes them: the model was moved or copied, "
                "or its optimizer loaded another state; make a new Recorded(method)"
            )
        if self._trained() != self.trained:
            raise ValueError("parameters were frozen or freed after the step was captured; make a new Recorded(method)")
        if self._options() != self.options:
            raise ValueError(
                f"options of the optimizer other than lr are part of the capture: {self.options}, now "
                f"{self._options()}; make a new Recorded(method)"
            )
        for i, group in enumerate(self.optimizer.param_groups):
            if group["lr"] is not self.rates[i] and group["lr"] != self.known[i]:
                self.known[i] = group["lr"]
                self.rates[i].fill_(group["lr"])

    def _trained(self) -> list[bool]:
        return [p.requires_grad for group in self.optimizer.param_groups for p in group["params"]]

    def _options(self) -> list[dict[str, Any]]:
        """The optimizer's own; a scheduler adds others to its groups, such as initial_lr, that no step reads."""
        own = [name for name in self.optimizer.defaults if name != "lr"]
        return [{name: group.get(name) for name in own} for group in self.optimizer.param_groups]

    def _places(self) -> list[int]:
        """The addresses of all parameters, and of the state of the first in each group."""
        groups = self.optimizer.param_groups
        state = [t for group in groups for t in self.optimizer.state.get(group["params"][0], {}).values()]
        return [t.data_ptr() for t in (*(p for g in groups for p in g["params"]), *state) if isinstance(t, Tensor)]
