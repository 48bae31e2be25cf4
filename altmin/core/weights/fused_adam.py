"""torch's Adam with less around its fused kernel."""

from typing import Any

import torch
from torch import Tensor

from altmin.core.weights import sparse


class FusedAdam(torch.optim.Adam):
    """torch's Adam and its fused kernel, without the bookkeeping that costs small nets more than the kernel does.

    State, options, hooks and schedulers are Adam's own, and so is `found_inf`: while this attribute is a tensor without
    dimensions that is 1, a step changes nothing. A group of tables with sparse gradients takes a step of SparseAdam.
    """

    @torch.no_grad()
    def update(self) -> None:
        """One step."""
        found_inf = getattr(self, "found_inf", None)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:  # all is frozen
                continue
            states = [self.state[p] or self._begin(p, group) for p in params]
            steps = [s["step"] for s in states]
            for step in {id(step): step for step in steps}.values():  # as a rule one for all
                step += 1 if found_inf is None else 1 - found_inf
            if params[0].grad.is_sparse:
                sparse.step_rows(group, params, states)
                continue
            kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
            kernel(
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
                found_inf=found_inf,
            )

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._opt_called = True  # what a scheduler asks for
        if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks:
            _update_with_hooks(self)
        else:
            self.update()

    step.hooked = True  # type: ignore[attr-defined]  # or torch wraps it in a profiler, which costs as much as the step

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        begun = [self.state[q]["step"] for q in group["params"] if self.state[q]]
        shared = begun[0] if begun and not begun[0].any() else torch.zeros((), dtype=torch.float32, device=p.device)
        self.state[p] = {
            "step": shared,
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
        return self.state[p]


@torch.optim.Optimizer.profile_hook_step
def _update_with_hooks(optimizer: FusedAdam) -> None:
    optimizer.update()
