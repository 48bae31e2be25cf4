"""The local weight rules and torch: clipping, hooks, fused steps, and Adam by backprop in the limit of no code step."""

import copy

import pytest
import torch
from test_weights_local import close, setting, trainer, values
from torch import nn

import altmin


def test_where_codes_do_not_move_am_adam_clips_as_backprop_does():
    model, x, y = setting()
    twin = copy.deepcopy(model)
    am = altmin.methods.create("am-adam", model, lr=0.01, share=0.0, clip_norm=0.1)
    adam = torch.optim.Adam(twin.parameters(), 0.01)
    for _ in range(5):
        am.step(x, y)
        adam.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        assert nn.utils.clip_grad_norm_(twin.parameters(), 0.1) > 0.1
        adam.step()
    close(model.parameters(), twin.parameters(), 1e-9)


def test_hooks_on_the_step_of_an_optimizer_are_called_and_those_that_would_not_be_are_refused():
    model, x, y = setting()
    for refuse in ("register_step_pre_hook", "register_step_post_hook"):
        with pytest.raises(RuntimeError):
            getattr(trainer(model, altmin.LocalAdam()).optimizer, refuse)(print)
    am, before, calls = trainer(model, altmin.LocalOptimizer(torch.optim.SGD, 0.1)), values(model), []

    def forget(optimizer, args, kwargs) -> None:
        calls.append("before")
        for p in model.parameters():
            p.grad.zero_()

    am.optimizer.register_step_pre_hook(forget)
    am.optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    am.step(x, y)
    assert calls == ["before", "after"]
    close(model.parameters(), before, 0.0)
