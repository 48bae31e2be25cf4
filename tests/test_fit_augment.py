"""Samples are changed before each step by random numbers of the batch alone: resumed, in an ensemble, on any method."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import Ensemble, methods
from altmin.data import crop_flip
from altmin.fit import epoch_order, fit, fit_ensemble
from altmin.fit.samples import batch_generator


def images(n: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 1, 6, 6, generator=generator), torch.randint(3, (n,), generator=generator)


def learner(seed: int = 0, name: str = "adam") -> Any:
    torch.manual_seed(seed)
    return methods.create(name, nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)), lr=0.01)


def weights(method: Any) -> list[Tensor]:
    return [p.detach().clone() for p in method.model.parameters()]


@pytest.mark.parametrize("name", ["adam", "am-adam"])
@pytest.mark.parametrize("augment", ["crop-flip", crop_flip], ids=["by name", "as a function"])
def test_a_step_sees_what_the_batch_and_its_own_random_numbers_make(augment: Any, name: str) -> None:
    x, y = images()
    by_hand, method = learner(name=name), learner(name=name)
    for epoch in range(2):
        for batch, rows in enumerate(epoch_order(50, 7, epoch).split(20)):
            by_hand.step(crop_flip(x[rows], batch_generator(7, epoch, batch)), y[rows])
        by_hand.end_epoch()
    fit(method, (x, y), epochs=2, batch_size=20, seed=7, augment=augment)
    assert all(map(torch.equal, weights(method), weights(by_hand)))
    plain = learner(name=name)
    fit(plain, (x, y), epochs=2, batch_size=20, seed=7)
    assert not all(map(torch.equal, weights(plain), weights(by_hand)))


def test_what_is_evaluated_is_not_changed() -> None:
    samples, seen = images(), []
    fit(
        learner(),
        samples,
        samples,
        epochs=1,
        batch_size=20,
        augment="crop-flip",
        evaluate=lambda model, test: float(len(seen.append(test[0]) or seen)),
    )
    assert torch.equal(seen[0], images()[0])


class Stop(Exception):
    pass


def test_a_run_that_goes_on_sees_the_same_samples(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 20, "seed": 3, "augment": "crop-flip"}
    whole, method = learner(), learner()
    fit(whole, images(), **settings)
    kept = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}

    def stop(at: Any) -> None:
        if at.batch == 5:
            raise Stop

    with pytest.raises(Stop):
        fit(method, images(), **settings, **kept, report=stop)
    resumed = learner(seed=1)
    for other, found in ((None, "absent"), (crop_flip, r"altmin\.data\.augment\.crop_flip")):
        with pytest.raises(ValueError, match=f"its augmentation is 'crop-flip', here it is {found}"):
            fit(resumed, images(), **{**settings, "augment": other}, **kept, resume=True)
    fit(resumed, images(), **settings, **kept, resume=True)
    assert all(map(torch.equal, weights(resumed), weights(whole)))


@pytest.mark.parametrize("seeds", [(4, 5), (4, 4)])
def test_members_see_the_samples_that_each_would_see_alone(seeds: tuple[int, int]) -> None:
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 20, "augment": "crop-flip"}
    together = fit_ensemble(Ensemble([learner(0), learner(1)]), images(), seeds=seeds, **settings)
    for i, history in enumerate(together):
        alone = fit(learner(i), images(), seed=seeds[i], **settings)
        for a, b in zip(history.epochs, alone.epochs, strict=True):
            assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)


@pytest.mark.parametrize(
    "augment, error, words",
    [
        ("crop-flop", ValueError, "unknown augmentation 'crop-flop'; did you mean 'crop-flip'"),
        (3, TypeError, r"augment of fit is a name or a function \(x, generator\) -> x, given 3"),
        (lambda x, generator: x[..., :3], ValueError, "samples of another shape or type; it must keep both"),
        (lambda x, generator: x.double(), ValueError, "samples of another shape or type; it must keep both"),
    ],
)
def test_what_is_no_augmentation_is_refused_before_the_first_step(augment: Any, error: type, words: str) -> None:
    method = learner()
    before = weights(method)
    with pytest.raises(error, match=words):
        fit(method, images(), epochs=1, batch_size=20, augment=augment)
    assert all(map(torch.equal, weights(method), before))


def test_samples_that_are_no_images_are_refused() -> None:
    x, y = images()
    with pytest.raises(ValueError, match=r"crops are made of images, .* given \(1, 36\)"):
        fit(learner(), (x.flatten(1), y), epochs=1, batch_size=20, augment="crop-flip")
