"""Whole epochs on the device are those of `fit`. On a CPU a stand-in runs the steps instead of replaying them."""

import hashlib
import warnings

import pytest
import test_runners_recorded as recorded_cases
import torch
from capture_cases import F64, same, stand_in
from test_runners_recorded import build as build_on
from test_runners_recorded import ensemble
from torch import nn

import altmin
from altmin.data import windows
from altmin.runners import Recorded
from altmin.training import fit, train_on_device


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


@pytest.mark.parametrize("net", ["resnet18", "gpt"])
def test_whole_epochs_of_nets_that_branch_are_those_of_fit(net):
    x, y = (torch.cat(t) for t in zip(*recorded_cases.batches(net, 3), strict=True))
    ordinary, other = (build_on(net, "am-adam") for _ in range(2))
    history = fit(ordinary, (x, y), epochs=2, batch_size=16, seed=3)
    losses = train_on_device(other, x, y, batch_size=16, epochs=2, seeds=[3], fuse=False)
    same(ordinary.model, other.model, 1e-7)
    assert losses == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)


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
    x[altmin.training.epoch_order(48, 3, 0)[20]] = torch.finfo(x.dtype).max  # of the second batch
    ordinary, other = build("am-adam"), build("am-adam")
    for method in (ordinary, other):
        nn.init.ones_(next(method.model.parameters()))  # with which a sum over that sample is not finite
    with pytest.raises(altmin.Diverged, match="batch 2 of 3, epoch 1"):
        train_on_device(other, x, y, batch_size=16, seeds=[3], fuse=False)
    rows = altmin.training.epoch_order(48, 3, 0)[:16].to(x.device)
    ordinary.step(x[rows], y[rows])
    same(ordinary.model, other.model, 1e-8)
    assert other.penalty.value == pytest.approx(ordinary.penalty.value)  # type: ignore[attr-defined]


def test_an_epoch_in_which_the_loss_explodes_is_noticed_at_its_end():
    x, y = samples(48)
    settings = {"batch_size": 16, "epochs": 3, "fuse": False}
    with pytest.raises(altmin.Diverged, match=r"the loss in batch 2 of 3, epoch 1, exploded to .*; lower .*, 1000$"):
        train_on_device(build("adam", lr=1e3), x, y, **settings)
    members = altmin.Ensemble([build("adam", lr=lr) for lr in (0.01, 1e3)])
    losses = train_on_device(members, x, y, seeds=[0, 0], **settings)
    assert members.diverged == {1: 4}
    alone = train_on_device(build("adam", lr=0.01), x, y, **settings)
    assert [each[0] for each in losses] == pytest.approx(alone, rel=1e-8)


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
        train_on_device(build_on("mlp", "am-mem-fitted", steps=None), x, y, batch_size=13)


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
    histories = altmin.training.fit_ensemble(ordinary, (x, y), epochs=2, batch_size=16, seeds=seeds)
    losses = train_on_device(other, x, y, batch_size=16, epochs=2, seeds=seeds, fuse=False)
    same(ordinary.model, other.model, 1e-8)
    for i, history in enumerate(histories):
        assert [epoch[i] for epoch in losses] == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)
    recorded = Recorded(ensemble("mlp", "am-adam"), fuse=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = altmin.training.fit_ensemble(recorded, (x, y), epochs=2, batch_size=16, seeds=seeds)
    same(ordinary.model, recorded.model, 1e-8)
    assert again[2].epochs[-1]["train_loss"] == pytest.approx(histories[2].epochs[-1]["train_loss"], rel=1e-8)


SAMPLES = {
    "crop-flip": (
        lambda: (torch.randn(44, 1, 4, 5, dtype=F64), torch.randint(3, (44,))),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 6), nn.Tanh(), nn.Linear(6, 3)),
    ),
    "random-windows": (
        lambda: windows(torch.randint(7, (44 * 4 + 1,)), 4),
        lambda: nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 7)),
    ),
}


def changed(augment: str, method: str, place: str, seed: int = 0) -> tuple[altmin.methods.Method, tuple]:
    """A method, and 44 samples for an augmentation."""
    torch.manual_seed(1)
    x, y = SAMPLES[augment][0]()
    torch.manual_seed(seed)
    fused = {"fused": True} if method == "adam" else {}
    made = altmin.methods.create(method, SAMPLES[augment][1]().to(place, F64), lr=2**-8, **fused)
    return made, (x.to(place), y.to(place))


@pytest.mark.parametrize("augment", SAMPLES)
@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_samples_on_the_device_are_changed_as_fit_changes_them(method, augment, place):
    """Smaller last batches too, with another change at every step."""
    (ordinary, samples), (other, _) = (changed(augment, method, place) for _ in range(2))
    history = fit(ordinary, samples, epochs=3, batch_size=16, seed=3, augment=augment)
    losses = train_on_device(other, *samples, batch_size=16, epochs=3, seeds=[3], fuse=False, augment=augment)
    same(ordinary.model, other.model, 1e-8)
    assert losses == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)
    plain = train_on_device(
        changed(augment, method, place)[0], *samples, batch_size=16, epochs=3, seeds=[3], fuse=False
    )
    assert plain != pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("augment", SAMPLES)
@pytest.mark.parametrize("seeds", [[3, 4], [3, 3]], ids=str)
def test_every_member_on_the_device_has_changes_of_its_own_seed(augment, seeds, place):
    def members():
        made = [changed(augment, "am-adam", place, seed) for seed in (0, 1)]
        return altmin.Ensemble([method for method, _ in made]), made[0][1]

    (ordinary, samples), (other, _) = members(), members()
    histories = altmin.training.fit_ensemble(ordinary, samples, epochs=2, batch_size=16, seeds=seeds, augment=augment)
    losses = train_on_device(other, *samples, batch_size=16, epochs=2, seeds=seeds, fuse=False, augment=augment)
    same(ordinary.model, other.model, 1e-8)
    for i, history in enumerate(histories):
        assert [epoch[i] for epoch in losses] == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)


@pytest.mark.parametrize("augment", SAMPLES)
def test_changes_drawn_on_the_device_follow_seed_and_epoch(augment, place):
    (ordinary, (x, y)), (other, _) = (changed(augment, "am-adam", place) for _ in range(2))
    change, drawn = altmin.data.AUGMENTATIONS[augment](x, y), []
    train_on_device(other, x, y, batch_size=16, epochs=2, seeds=[3], shuffle="device", fuse=False, augment=augment)
    for epoch in range(2):
        seed = int.from_bytes(hashlib.sha256(f"3 {epoch}".encode()).digest()[:4], "big")
        generator = torch.Generator(place).manual_seed(seed)
        order = torch.randperm(44, generator=generator, device=place)
        numbers = change.draw(44, generator)
        drawn.append(numbers.tolist())
        for rows, own in zip(order.split(16), numbers.split(16), strict=True):
            ordinary.step(*change.apply(x[rows], y[rows], own))
        ordinary.end_epoch()
    same(ordinary.model, other.model, 1e-8)
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    "method, schedule, warmup",
    [
        *(("am-adam", *plan) for plan in (("one-cycle", 0), ("constant", 5), ("linear/epoch", 1), ("step", 0))),
        *(("am-sgd", "cosine", 3), ("adam", "cosine", 3)),
    ],
)
def test_rates_on_the_device_are_those_of_fit(method, schedule, warmup):
    """Of every batch, the smaller last one too."""
    x, y = samples(60)
    ordinary, other = build(method), build(method)
    plan = {"schedule": schedule, "warmup": warmup}
    before = other.optimizer.param_groups[0]["lr"]
    history = fit(ordinary, (x, y), epochs=3, batch_size=16, seed=3, **plan)
    losses = train_on_device(other, x, y, batch_size=16, epochs=3, seeds=[3], fuse=False, **plan)
    same(ordinary.model, other.model, 1e-6)  # rates are float32 on a device
    assert losses == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-6)
    assert other.optimizer.param_groups[0]["lr"] == before


def test_members_on_the_device_follow_the_schedule_each_from_its_own_rate():
    x, y = samples()
    ordinary, other = ensemble("mlp", "am-adam"), ensemble("mlp", "am-adam")
    plan = {"schedule": "cosine", "warmup": 2}
    altmin.training.fit_ensemble(ordinary, (x, y), epochs=2, batch_size=16, seeds=[3, 4, 5], **plan)
    train_on_device(other, x, y, batch_size=16, epochs=2, seeds=[3, 4, 5], fuse=False, **plan)
    same(ordinary.model, other.model, 1e-6)


def test_a_change_that_cannot_be_recorded_is_refused_and_nothing_is_trained(place):
    method, (x, y) = changed("crop-flip", "am-adam", place)
    before = [p.clone() for p in method.model.parameters()]
    refused = [
        (
            {"augment": altmin.data.crop_flip},
            ValueError,
            "a function draws on the processor.*names are crop-flip, random",
        ),
        ({"augment": "crop"}, ValueError, "unknown augmentation 'crop'; did you mean 'crop-flip'"),
        ({"augment": 3}, TypeError, "given 3"),
        ({"augment": "random-windows"}, ValueError, "random windows are made of windows of tokens"),
        ({"schedule": "cosine", "warmup": 99}, ValueError, "which has 4 batches, given warmup=99"),
    ]
    for options, kind, words in refused:
        with pytest.raises(kind, match=words):
            train_on_device(method, x, y, batch_size=11, **options)
    assert all(map(torch.equal, before, method.model.parameters()))


@pytest.mark.parametrize("augment", SAMPLES)
@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_a_recorded_method_learns_from_the_same_changes_at_the_same_rates(method, augment, place):
    settings = {"epochs": 2, "batch_size": 16, "seed": 3, "augment": augment, "schedule": "cosine", "warmup": 2}
    (ordinary, samples), (other, _) = (changed(augment, method, place) for _ in range(2))
    fit(ordinary, samples, **settings)
    recorded = Recorded(other, fuse=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the smaller last batch
        fit(recorded, samples, **settings)
    same(ordinary.model, recorded.model, 1e-6)
