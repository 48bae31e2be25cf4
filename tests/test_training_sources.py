"""Whatever the samples come in, training is the same: arrays, Datasets, batches against tensors and loops by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from loop_cases import Recorder, learner, numbered, outcome, samples, weights

from altmin import Ensemble
from altmin.training import fit, fit_ensemble
from altmin.training.sources import source

SETTINGS: dict[str, Any] = {"epochs": 2, "seed": 3}


def arrays(n: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """As they come from a table: float64 and int32."""
    x, y = samples(n, seed)
    return x.numpy().astype(np.float64), y.numpy().astype(np.int32)


@pytest.mark.parametrize("kind", ["arrays", "pandas"])
def test_samples_in_another_form_give_the_run_of_tensors(kind: str) -> None:
    def wrap(n: int, seed: int) -> Any:
        if kind == "arrays":
            return arrays(n, seed)
        pandas = pytest.importorskip("pandas")
        x, y = arrays(n, seed)
        return pandas.DataFrame(x), pandas.Series(y)

    plain, method = learner(), learner()
    expected = outcome(plain, fit(plain, samples(), samples(30, 1), batch_size=20, **SETTINGS))
    assert outcome(method, fit(method, wrap(50, 0), wrap(30, 1), batch_size=20, **SETTINGS)) == expected


def test_arrays_of_a_model_in_double_precision_stay_so() -> None:
    stored: Any = source("train", arrays(), learner().model.double())
    assert (stored.x.dtype, stored.y.dtype) == (torch.float64, torch.int64)
    whole: Any = source("train", (np.ones((3, 2)), np.ones((3, 1))), learner().model)
    assert whole.y.dtype == torch.float32


def batches() -> list[Any]:
    x, y = samples()
    return [(x[:20], y[:20]), [x[20:45].numpy().astype(np.float64), y[20:45].numpy()], (x[45:], y[45:])]


def test_batches_come_as_they_are_in_every_epoch() -> None:
    x, y = samples()
    ours, by_hand = learner(), learner()
    history = fit(ours, batches(), batches(), epochs=2, schedule="constant")
    losses = []
    for _ in range(2):
        for rows in (slice(20), slice(20, 45), slice(45, 50)):
            losses.append(float(by_hand.step(x[rows], y[rows]).loss))
        by_hand.end_epoch()
    assert all(map(torch.equal, weights(ours), weights(by_hand)))
    assert [row["train_loss"] for row in history.epochs] == pytest.approx([sum(losses[:3]) / 3, sum(losses[3:]) / 3])
    right = (by_hand.model(x).argmax(1) == y).double().mean().item()
    assert history.epochs[-1]["test_accuracy"] == pytest.approx(right, abs=1e-12)


def test_an_iterator_is_gone_through_once() -> None:
    recorder = Recorder()
    history = fit(recorder, (numbered(i) for i in range(1, 4)), epochs=1)
    assert [len(batch) for batch in recorder.seen] == [1, 2, 3]
    assert history.epochs[0]["train_loss"] == 2.0
    with pytest.raises(ValueError, match="no batches in epoch 2"):
        fit(recorder, (numbered(i) for i in range(1, 4)), epochs=2)


def test_members_of_an_ensemble_share_batches() -> None:
    ensemble = Ensemble([learner(seed=s) for s in (0, 1)])
    together = fit_ensemble(ensemble, batches(), samples(30, 1), epochs=2, seeds=[4, 7])
    for s, history in enumerate(together):
        alone = fit(learner(seed=s), batches(), samples(30, 1), epochs=2, seed=[4, 7][s])
        for a, b in zip(history.epochs, alone.epochs, strict=True):
            assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-4)
            assert a["test_accuracy"] == pytest.approx(b["test_accuracy"], abs=1e-6)
