"""Samples are changed before each step by random numbers of the batch alone: resumed, in an ensemble, on any method."""

from typing import Any

import pytest
import torch
from loop_cases import weights
from test_data_batches import crop_flip
from torch import Tensor, nn

from altmin import Ensemble, methods
from altmin.data import CropFlip, windows
from altmin.training import epoch_order, fit, fit_ensemble
from altmin.training.samples import batch_generator


def images(n: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 1, 6, 6, generator=generator), torch.randint(3, (n,), generator=generator)


def learner(seed: int = 0, name: str = "adam") -> Any:
    torch.manual_seed(seed)
    return methods.create(name, nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)), lr=0.01)


def text() -> tuple[Tensor, Tensor]:
    return windows(torch.randint(7, (201,), generator=torch.Generator().manual_seed(0)), 4)


def reader(seed: int = 0, name: str = "adam") -> Any:
    torch.manual_seed(seed)
    return methods.create(name, nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 7)), lr=0.01)


RUNS = {"crop-flip": (learner, images), "random-windows": (reader, text)}


def drawn_windows(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The text of all windows is put together, and cut where the numbers say."""
    whole, last = text()
    tokens = [*whole.flatten().tolist(), int(last[-1, -1])]
    places = torch.randint(197, (len(x),), generator=generator).tolist()
    return torch.tensor([tokens[i : i + 4] for i in places]), torch.tensor([tokens[i + 1 : i + 5] for i in places])


def cropped(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return crop_flip(x, generator), y


FORMS = {
    "crop-flip": ("crop-flip", cropped, "crop-flip"),
    "a function": ("crop-flip", cropped, crop_flip),
    "in two parts": ("crop-flip", cropped, CropFlip()),
    "random-windows": ("random-windows", drawn_windows, "random-windows"),
}


@pytest.mark.parametrize("name", ["adam", "am-adam"])
@pytest.mark.parametrize("form", FORMS)
def test_a_step_sees_what_the_batch_and_its_own_random_numbers_make(form: str, name: str) -> None:
    kind, change, augment = FORMS[form]
    make, samples = RUNS[kind]
    (x, y), by_hand, method, plain = samples(), *(make(name=name) for _ in range(3))
    for epoch in range(2):
        for batch, rows in enumerate(epoch_order(50, 7, epoch).split(20)):
            by_hand.step(*change(x[rows], y[rows], batch_generator(7, epoch, batch)))
        by_hand.end_epoch()
    settings = {"epochs": 2, "batch_size": 20, "seed": 7, "schedule": "constant"}
    fit(method, (x, y), augment=augment, **settings)
    assert all(map(torch.equal, weights(method), weights(by_hand)))
    fit(plain, (x, y), **settings)
    assert not all(map(torch.equal, weights(plain), weights(by_hand)))


@pytest.mark.parametrize("augment", RUNS)
def test_what_is_evaluated_is_not_changed(augment: str) -> None:
    (learn, samples_of), seen = RUNS[augment], []
    samples = samples_of()
    metrics = {"seen": lambda output, y: float(len(seen.append(y) or seen))}
    method = learn()

    def note(model: nn.Module, given: Any) -> None:
        if not model.training:
            seen.append(given[0])

    method.model.register_forward_pre_hook(note)
    fit(method, samples, samples, epochs=1, batch_size=20, augment=augment, metrics=metrics)
    *inputs, targets = seen
    assert torch.equal(torch.cat(inputs), samples_of()[0])
    assert torch.equal(targets, samples_of()[1])
    assert all(map(torch.equal, samples, samples_of()))


@pytest.mark.parametrize("augment", RUNS)
@pytest.mark.parametrize("seeds", [(4, 5), (4, 4)])
def test_members_see_the_samples_that_each_would_see_alone(seeds: tuple[int, int], augment: str) -> None:
    learn, samples = RUNS[augment]
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 20, "augment": augment}
    together = fit_ensemble(Ensemble([learn(0), learn(1)]), samples(), seeds=seeds, **settings)
    for i, history in enumerate(together):
        alone = fit(learn(i), samples(), seed=seeds[i], **settings)
        for a, b in zip(history.epochs, alone.epochs, strict=True):
            assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)
