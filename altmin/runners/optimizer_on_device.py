"""A torch optimizer inside a captured step: its rates are read from the device, and Adam can be compiled with it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from altmin.runners.optimizers import adam, coefficients


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

    def step_adam(self, grads: Mapping[nn.Parameter, Tensor], found_inf: Tensor) -> None:
        """A step of Adam, by its formula instead of its kernel: compiled, it is one pass over memory on the whole
        device, where the kernel of a small net occupies a few of its processors. Nothing changes where found_inf is 1.
        """
        ok = found_inf == 0
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            numbers = {"beta1": group["betas"][0], "beta2": group["betas"][1], "eps": group["eps"]}
            numbers |= {"weight_decay": group["weight_decay"]} if group["weight_decay"] else {}
            options = {name: torch.full_like(rate, value, dtype=torch.float64) for name, value in numbers.items()}
            params = [p for p in group["params"] if p in grads and p.requires_grad]
            steps = {id(step): step for step in (self.optimizer.state[p]["step"] for p in params)}
            for step in steps.values():
                step += ok
            for p in params:
                state = self.optimizer.state[p]
                row = {"weights": p, "exp_avg": state["exp_avg"], "exp_avg_sq": state["exp_avg_sq"]}
                c = coefficients(options | {"lr": rate.double()}, state["step"].double().clamp_min(1), p.dtype)
                new = adam(row, grads[p], c, group["decoupled_weight_decay"])
                good = ok & new["weights"].isfinite()  # at every weight by itself; `pull` tells
                for name, old in row.items():
                    old.copy_(torch.where(good, new[name], old))

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
