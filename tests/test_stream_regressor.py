"""Numbers from streams: targets of any scale, and what a network learns of them."""

import numpy as np
import pytest
import torch

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from altmin.stream import OnlineRegressor  # noqa: E402


def stream(samples: int, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> list[tuple[dict[str, float], float]]:
    """y = shift + scale (2 u - v), without noise."""
    x = np.random.default_rng(seed).normal(size=(samples, 2))
    return [({"u": u, "v": v}, shift + scale * (2 * u - v)) for u, v in x.tolist()]


def test_the_target_of_the_network_is_standardised_and_its_output_put_back() -> None:
    model = OnlineRegressor((8,), seed=0, standardise=False)
    for x, y in stream(20, 3.0, 100.0):
        model.learn_one(x, y)
    targets = np.array([y for _, y in stream(20, 3.0, 100.0)])
    x = {"v": -1.0, "u": 0.5}
    output = model.network(torch.tensor([[0.5, -1.0]], dtype=torch.float64)).item()
    assert model.predict_one(x) == pytest.approx(targets.mean() + targets.std() * output, rel=1e-9)


def test_the_scale_and_the_shift_of_the_target_do_not_matter() -> None:
    found = []
    for scale, shift in ((1.0, 0.0), (1e4, 3e4)):
        model = OnlineRegressor((8,), seed=0)
        for x, y in stream(60, scale, shift):
            model.learn_one(x, y)
        found.append((model.predict_one({"u": 1.0, "v": 0.0}) - shift) / scale)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("method", ["am-adam", "am-mem-fitted"])
def test_a_linear_target_is_learnt(method: str) -> None:
    model = OnlineRegressor(method=method, seed=0)
    for x, y in stream(400, 3.0, 100.0):
        model.learn_one(x, y)
    errors = [model.predict_one(x) - y for x, y in stream(100, 3.0, 100.0, seed=1)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.2 * 3.0 * 5**0.5  # a fifth of the target's deviation


def test_many_are_predicted_as_one_is() -> None:
    model = OnlineRegressor((8,), seed=0)
    samples = [x for x, _ in stream(5)]
    X = pd.DataFrame(samples, index=range(3, 8))
    assert model.predict_many(X).tolist() == [0.0] * 5
    assert model.predict_one(samples[0]) == 0.0
    for x, y in stream(20):
        model.learn_one(x, y)
    assert model.predict_many(X).tolist() == pytest.approx([model.predict_one(x) for x in samples], rel=1e-9)
    assert list(model.predict_many(X).index) == list(X.index)


def test_targets_that_are_no_numbers_are_refused() -> None:
    for wrong in (None, "3", float("inf"), float("nan"), 1e200, 10**400):
        with pytest.raises(ValueError, match="a target is a number"):
            OnlineRegressor().learn_one({"u": 1.0}, wrong)
