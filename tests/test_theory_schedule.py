"""The theorem's step size as a torch scheduler."""

import pytest
import torch
from torch import nn

import altmin
from altmin.paper import theory


def test_the_schedule_gives_local_sgd_the_theorems_step_sizes_and_resumes() -> None:
    model = altmin.models.mlp(3, (4,), 2, nn.Tanh)
    am = altmin.AltMin(model, nn.MSELoss(), weights=altmin.LocalSGD(lr=0.1), penalty=1.0)
    schedule = theory.step_size_schedule(am.optimizer, xi=2.0, gamma=0.1, blocks=3)
    x, y = torch.randn(8, 3), torch.randn(8, 2)
    for t in range(3):
        rates = {group["lr"] for group in am.optimizer.param_groups}
        assert rates == {theory.step_size(t, 2.0, 0.1, 3)}
        am.step(x, y)
        schedule.step()
    again = theory.step_size_schedule(am.optimizer, xi=2.0, gamma=0.1, blocks=3)
    again.load_state_dict(schedule.state_dict())
    am.step(x, y)
    again.step()
    assert am.optimizer.param_groups[0]["lr"] == theory.step_size(4, 2.0, 0.1, 3)
    with pytest.raises(ValueError, match="reaches the limit"):
        theory.step_size_schedule(am.optimizer, xi=1.0, gamma=0.5, blocks=3)
    with pytest.raises(ValueError, match="xi > 0"):
        theory.step_size_schedule(am.optimizer, xi=0.0, gamma=0.5, blocks=3)
