"""Whole epochs on the device are those of `fit`. On a CPU a stand-in runs the steps instead of replaying them."""

import hashlib
import warnings

import pytest
import test_execution_recorded as recorded_cases
import torch
from capture_cases import F64, same, stand_in
from test_execution_recorded import build as build_on
from test_execution_recorded import ensemble
from torch import nn

import altmin
from altmin.execution import Recorded
from altmin.fit import fit, train_on_device


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request, monkeypatch):
    monkeypatch.setattr(recorded_cases, "place", request.param)
    if request.param == "cpu":
        stand_in(monkeypatch)
    return request.param


def build(method: str, **options) -> altmin.methods.Method:
    return build_on("mlp", method, **options)


def samples(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = (torch.cat(t) for t in zip(*recorded_cases.batches("mlp", 5), strict=True))
    return x[:count], y[:count]


@pytest.mark.parametrize("method", ["am-adam", "am-sgd", "adam"])
@pytest.mark.parametrize("count", [60, 48], ids=["and a smaller last batch", "full batches"])
def test_whole_epochs_on_the_device_are_those_of_fit(method, count):
    x, y = samples(count)
    grows = [{} if method == "adam" else {"penalty": altmin.Penalty(1.0, increment=0.3, growth=1.5)} for _ in range(2)]
    ordinary, other = (build(method, **penalty) for penalty in grows)
    history = fit(ordinary, (x, y), epochs=3, batch_size=16, seed=3)
    losses = train_on_device(other, x, y, batch_size=16, epochs=3, seeds=[3], fuse=False)
    same(ordinary.model, other.model, 1e-8)
    assert losses == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)
    if method != "adam":
        assert other.penalty.value == pytest.approx(ordinary.penalty.value)  # type: ignore[attr-defined]


def test_an_order_drawn_on_the_device_sees_every_sample_once_an_epoch(place):
    x, y = samples(48)
    seen, ordinary, other = [], build("am-adam"), build("am-adam")
    losses = train_on_device(other, x, y, batch_size=16, epochs=2, seeds=[3], shuffle="device", fuse=False)
    for epoch in range(2):
        seed = int.from_bytes(hashlib.sha256(f"3 {epoch}".encode()).digest()[:4], "big")
        order = torch.randperm(48, generator=torch.Generator(place).manual_seed(seed), device=place)
        seen.append([ordinary.step(x[rows], y[rows]).loss.item() for rows in order.split(16)])
        ordinary.end_epoch()
    same(ordinary.model, other.model, 1e-8)
    assert losses == pytest.approx([sum(epoch) / 3 for epoch in seen], rel=1e-8)


def test_an_epoch_with_a_bad_sample_ends_before_it():
    x, y = samples(48)
    x[altmin.fit.epoch_order(48, 3, 0)[20]] = torch.finfo(x.dtype).max  # of the second batch
    ordinary, other = build("am-adam"), build("am-adam")
    for method in (ordinary, other):
        nn.init.ones_(next(method.model.parameters()))  # with which a sum over that sample is not finite
    with pytest.raises(altmin.Diverged, match="batch 2 of 3, epoch 1"):
        train_on_device(other, x, y, batch_size=16, seeds=[3], fuse=False)
    rows = altmin.fit.epoch_order(48, 3, 0)[:16].to(x.device)
    ordinary.step(x[rows], y[rows])
    same(ordinary.model, other.model, 1e-8)
    assert other.penalty.value == pytest.approx(ordinary.penalty.value)  # type: ignore[attr-defined]


def test_it_refuses_what_fit_refuses_and_what_it_cannot_do():
    x, y = samples(26)
    refused = [
        ({"batch_size": 0}, "batch_size of fit must be a whole number of at least 1"),
        ({"batch_size": 27}, "a full batch is needed to capture, and 27 samples are more than the 26 given"),
        ({"batch_size": 13, "seeds": [1, 2]}, "a seed for each of 1 members is needed, given 2"),
        ({"batch_size": 13, "shuffle": "never"}, 'shuffle is "fit" or "device", given \'never\''),
    ]
    for options, words in refused:
        with pytest.raises(ValueError, match=words):
            train_on_device(build("am-adam"), x, y, **options)
    with pytest.raises(ValueError, match="cannot be captured"):
        train_on_device(build_on("mlp", "am-mem", steps=None), x, y, batch_size=13)


def test_a_single_normed_sample_is_left_out():
    x, y = samples(25)
    runs = []
    for on_device in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).to(x.device, F64)
        method = altmin.methods.create("adam", model, fused=True, lr=2**-10)
        if on_device:
            losses = train_on_device(method, x, y, batch_size=12, seeds=[3], fuse=False)
        else:
            history = fit(method, (x, y), epochs=1, batch_size=12, seed=3)
            losses = [row["train_loss"] for row in history.epochs]
        runs.append((model, losses))
    same(runs[0][0], runs[1][0], 1e-8)
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-8)


@pytest.mark.parametrize("seeds", [[3, 4, 5], [3, 3, 3]], ids=str)
def test_epochs_of_an_ensemble_on_the_device_are_those_of_fit_ensemble(seeds):
    x, y = samples()
    ordinary, other = ensemble("mlp", "am-adam"), ensemble("mlp", "am-adam")
    histories = altmin.fit.fit_ensemble(ordinary, (x, y), epochs=2, batch_size=16, seeds=seeds)
    losses = train_on_device(other, x, y, batch_size=16, epochs=2, seeds=seeds, fuse=False)
    same(ordinary.model, other.model, 1e-8)
    for i, history in enumerate(histories):
        assert [epoch[i] for epoch in losses] == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)
    recorded = Recorded(ensemble("mlp", "am-adam"), fuse=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = altmin.fit.fit_ensemble(recorded, (x, y), epochs=2, batch_size=16, seeds=seeds)
    same(ordinary.model, recorded.model, 1e-8)
    assert again[2].epochs[-1]["train_loss"] == pytest.approx(histories[2].epochs[-1]["train_loss"], rel=1e-8)
