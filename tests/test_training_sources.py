"""Whatever the samples come in, training is the same: arrays, Datasets, batches against tensors and loops by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from loop_cases import Pairs, learner, numbers, outcome, samples, weights
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from altmin import Ensemble
from altmin.training import epoch_order, fit, fit_ensemble
from altmin.training.sources import Batches, source

SETTINGS: dict[str, Any] = {"epochs": 2, "seed": 3}


def arrays(n: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """As they come from a table: float64 and int32."""
    x, y = samples(n, seed)
    return x.numpy().astype(np.float64), y.numpy().astype(np.int32)


@pytest.fixture(scope="module")
def expected() -> Any:
    method = learner()
    return outcome(method, fit(method, samples(), samples(30, 1), batch_size=20, **SETTINGS))


@pytest.mark.parametrize(
    "wrap",
    [lambda n, s: arrays(n, s), lambda n, s: Pairs(*samples(n, s)), lambda n, s: TensorDataset(*samples(n, s))],
    ids=["arrays", "a Dataset", "a TensorDataset"],
)
def test_samples_in_another_form_give_the_run_of_tensors(wrap: Any, expected: Any) -> None:
    method = learner()
    assert outcome(method, fit(method, wrap(50, 0), wrap(30, 1), batch_size=20, **SETTINGS)) == expected


def test_a_table_of_pandas_is_an_array() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = arrays()
    plain, framed = learner(), learner()
    fit(plain, (x, y), epochs=1, batch_size=20)
    fit(framed, (pandas.DataFrame(x), pandas.Series(y)), epochs=1, batch_size=20)
    assert all(map(torch.equal, weights(plain), weights(framed)))


def test_arrays_of_a_model_in_double_precision_stay_so() -> None:
    model = learner().model.double()
    found: Any = source("train", arrays(), model)
    assert found.x.dtype == torch.float64
    assert found.y.dtype == torch.int64
    whole: Any = source("train", (np.ones((3, 2)), np.ones((3, 1))), learner().model)
    assert whole.y.dtype == torch.float32


def batches() -> list[Any]:
    x, y = samples()
    return [(x[:20], y[:20]), [x[20:45].numpy().astype(np.float64), y[20:45].numpy()], (x[45:], y[45:])]


def test_batches_come_as_they_are_in_every_epoch() -> None:
    x, y = samples()
    ours, by_hand = learner(), learner()
    history = fit(ours, batches(), batches(), epochs=2)
    losses = []
    for _ in range(2):
        for rows in (slice(20), slice(20, 45), slice(45, 50)):
            losses.append(float(by_hand.step(x[rows], y[rows]).loss))
        by_hand.end_epoch()
    assert all(map(torch.equal, weights(ours), weights(by_hand)))
    assert [row["train_loss"] for row in history.epochs] == pytest.approx([sum(losses[:3]) / 3, sum(losses[3:]) / 3])
    right = (by_hand.model(x).argmax(1) == y).double().mean().item()
    assert history.epochs[-1]["test_accuracy"] == pytest.approx(right, abs=1e-12)


def test_a_dataloader_gives_what_a_loop_over_it_gives() -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(Pairs(*samples()), batch_size=20, shuffle=True)

    ours, by_hand = learner(), learner()
    torch.manual_seed(5)
    fit(ours, loader(), samples(30, 1), epochs=2)
    torch.manual_seed(5)
    given = loader()
    for _ in range(2):
        for x, y in given:
            by_hand.step(x, y)
        by_hand.end_epoch()
    assert all(map(torch.equal, weights(ours), weights(by_hand)))


def test_members_of_an_ensemble_share_batches_and_have_orders_of_their_own_in_a_dataset() -> None:
    train: Any
    for train, more in ((batches(), {}), (Pairs(*samples()), {"batch_size": 20})):
        ensemble = Ensemble([learner(seed=s) for s in (0, 1)])
        together = fit_ensemble(ensemble, train, samples(30, 1), epochs=2, seeds=[4, 7], **more)
        for s, history in enumerate(together):
            alone = fit(learner(seed=s), train, samples(30, 1), epochs=2, seed=[4, 7][s], **more)
            for a, b in zip(history.epochs, alone.epochs, strict=True):
                assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-4)
                assert a["test_accuracy"] == pytest.approx(b["test_accuracy"], abs=1e-6)


def test_a_dataset_is_asked_for_the_samples_of_an_order_of_seed_and_epoch() -> None:
    asked: list[int] = []

    class Noted(Pairs):
        def __getitem__(self, i: int) -> Any:
            asked.append(i)
            return super().__getitem__(i)

    fit(learner(), Noted(*samples()), epochs=2, batch_size=20, seed=3)
    assert asked == [*epoch_order(50, 3, 0).tolist(), *epoch_order(50, 3, 1).tolist()]


def test_a_regression_in_a_dataloader_measures_its_loss() -> None:
    method = learner(outputs=2, loss=torch.nn.MSELoss())
    loader = DataLoader(Pairs(*numbers(30, 1)), batch_size=7)
    row = fit(method, numbers(), loader, epochs=1, batch_size=20).epochs[0]
    x, y = numbers(30, 1)
    assert row["test_loss"] == pytest.approx(float((method.model(x) - y).square().mean().detach()), rel=1e-5)


def test_a_look_at_the_first_batch_leaves_no_trace() -> None:
    for generator in (torch.Generator().manual_seed(2), None):
        loader = DataLoader(Pairs(*samples()), batch_size=20, shuffle=True, generator=generator)
        found = source("test", loader, learner().model)
        before, own = torch.get_rng_state(), generator.get_state() if generator else None
        assert isinstance(found, Batches)
        assert len(found.first()[0]) == 20
        assert torch.equal(torch.get_rng_state(), before)
        assert generator is None or own is None or torch.equal(generator.get_state(), own)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return zip(*samples(), strict=True)


ONE = samples(3)
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no data": (None, TypeError, "train of fit is a pair of tensors or arrays, a Dataset, .*, given NoneType"),
    "a path": ("data.npz", TypeError, "given str"),
    "inputs alone": (ONE[0], TypeError, "given Tensor"),
    "a list as labels": ((ONE[0], [0, 1, 2]), TypeError, r"given \['Tensor', 'list'\]"),
    "words": ((ONE[0], np.array(["a", "b", "c"])), TypeError, "holds <U1 where numbers are needed; encode them first"),
    "NaN": ((ONE[0] / 0, ONE[1]), ValueError, "the inputs of train hold NaN or infinite values"),
    "single samples": (Stream(), TypeError, r"gives samples one by one; give a DataLoader\("),
    "an empty Dataset": (Pairs(*samples(0)), ValueError, "train of fit has no samples"),
    "no batches": ([], ValueError, "train of fit has no batches"),
    "a dict of a batch": ([{"x": ONE[0]}], TypeError, "a batch of train is a pair of tensors, .*, given dict"),
    "three parts": ([(*ONE, ONE[0])], TypeError, r"given \['Tensor', 'Tensor', 'Tensor'\]"),
    "fewer labels": ([(ONE[0], ONE[1][:2])], ValueError, "has float32 3x6 inputs and int64 2 targets; give one target"),
}


@pytest.mark.parametrize("given", WRONG)
def test_what_holds_no_samples_is_refused_in_one_sentence_and_nothing_is_trained(given: str) -> None:
    train, error, words = WRONG[given]
    method = learner()
    before = weights(method)
    size = {} if isinstance(train, list) else {"batch_size": 2}
    with pytest.raises(error, match=words) as caught:
        fit(method, train, epochs=1, **size)
    assert "\n" not in str(caught.value)
    assert all(map(torch.equal, weights(method), before))
