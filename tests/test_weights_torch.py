"""The local weight rules and torch: clipping, hooks, fused steps, and Adam by backprop in the limit of no code step."""

import copy

import pytest
import torch
from test_weights_local import close, constant, naive_gradients, setting, trainer, values
from torch import nn

import altmin


def test_gradients_are_clipped_as_torch_clips_them():
    model, x, y = setting()
    before, gradients = values(model), naive_gradients(model, x, y)
    total = torch.stack([g.norm() for g in gradients]).norm()
    trainer(model, altmin.LocalSGD(lr=0.1, clip_norm=0.5 * float(total))).step(x, y)
    close(model.parameters(), [b - 0.05 * g for b, g in zip(before, gradients, strict=True)], 1e-5)


def test_a_method_by_name_clips_the_gradients_of_all_blocks_together():
    model, x, y = setting()
    before, gradients = values(model), naive_gradients(model, x, y)
    total = float(torch.stack([g.norm() for g in gradients]).norm())
    codes = altmin.GradientCodes(lr=0.4)
    options = {"lr": 0.1, "momentum": 0.0, "codes": codes, "penalty": constant(), "clip_norm": 0.25 * total}
    altmin.methods.create("am-sgd", model, **options).step(x, y)
    close(model.parameters(), [b - 0.025 * g for b, g in zip(before, gradients, strict=True)], 1e-5)


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


@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.LocalSGD])
def test_hooks_on_the_optimizers_step_are_called(rule):
    model, x, y = setting()
    am, before, calls = trainer(model, rule(lr=0.1)), values(model), []

    def forget(optimizer, args, kwargs) -> None:
        calls.append("before")
        for p in model.parameters():
            p.grad.zero_()

    am.optimizer.register_step_pre_hook(forget)
    am.optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    am.step(x, y)
    assert calls == ["before", "after"]
    close(model.parameters(), before, 0.0)


def test_where_something_is_not_finite_a_fused_step_changes_nothing():
    model, x, y = setting()
    am = trainer(model, altmin.LocalAdam(lr=0.1))
    am.step(x, y)
    before, state = values(model), copy.deepcopy(am.optimizer.state_dict()["state"])
    am.optimizer.found_inf = torch.ones(())
    am.optimizer.step()
    close(model.parameters(), before, 0.0)
    for number, kept in am.optimizer.state_dict()["state"].items():
        for name, value in kept.items():
            assert torch.equal(value, state[number][name])
    am.optimizer.found_inf = torch.zeros(())
    am.optimizer.step()
    assert not torch.equal(next(iter(model.parameters())), before[0])


def test_in_the_limit_of_small_code_steps_local_adam_is_torchs_adam_by_backprop():
    model, x, y = setting(nn.ReLU)
    twin = copy.deepcopy(model)
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalAdam(0.01, weight_decay=0.1))
    adam = torch.optim.Adam(twin.parameters(), 0.01, weight_decay=0.1)
    for _ in range(5):
        am.step(x, y)
        adam.zero_grad()
        nn.CrossEntropyLoss()(twin(x), y).backward()
        adam.step()
        close(model.parameters(), twin.parameters(), 1e-9)
