"""The theorem's step size as a torch scheduler, for `LocalSGD` or any optimizer."""

import torch

from reproduction.theory.bounds import step_size


class TheoremSchedule(torch.optim.lr_scheduler.LRScheduler):
    """Sets lr = eta_t in every group, where t counts the calls of `step`, one after each batch.

    xi: the least curvature of any block. gamma: the largest coupling. blocks: K, codes counted too. Raises ValueError
    unless xi > 0, gamma >= 0, K >= 2 and gamma is below its limit.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, xi: float, gamma: float, blocks: int, last_epoch: int = -1):
        if not (xi > 0 and gamma >= 0 and blocks >= 2):
            raise ValueError(
                f"the step size needs xi > 0, gamma >= 0 and blocks >= 2, given {xi}, {gamma} and {blocks}"
            )
        self.xi, self.gamma, self.blocks = xi, gamma, blocks
        step_size(0, xi, gamma, blocks)  # a coupling past the limit is refused now
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | torch.Tensor]:
        eta = step_size(self.last_epoch, self.xi, self.gamma, self.blocks)
        return [float(eta) for _ in self.optimizer.param_groups]
