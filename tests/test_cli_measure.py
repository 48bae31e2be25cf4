"""What `altmin bench` measures can be worked out by hand for a net small enough."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from altmin import methods
from altmin.cli.measure import Batch, spread, step_bytes, step_seconds, synthetic

FLOAT = 4


def one_layer(name: str) -> Callable[[], methods.Method]:
    return lambda: methods.create(name, nn.Sequential(nn.Linear(1000, 10, bias=False)))


def batch(size: int = 4) -> Batch:
    return torch.randn(size, 1000), torch.zeros(size, dtype=torch.int64)


def test_kept_memory_is_parameters_gradients_and_state() -> None:
    weights = 1000 * 10 * FLOAT
    kept_by_adam, _ = step_bytes(one_layer("adam"), batch())
    kept_by_sgd, _ = step_bytes(one_layer("sgd"), batch())
    assert kept_by_adam == 4 * weights + FLOAT, "weights, gradient, two moments and the step's number"
    assert kept_by_sgd == 3 * weights, "weights, gradient, momentum"


def test_the_peak_counts_what_lives_only_within_a_step() -> None:
    class Hungry:
        """Needs a million bytes for a moment, twice but not at once."""

        def __init__(self) -> None:
            self.model = nn.Linear(1, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters())

        def step(self, x: Tensor, y: Tensor) -> None:
            for _ in range(2):
                torch.empty(1_000_000, dtype=torch.uint8)

        def end_epoch(self) -> None: ...

    kept, peak = step_bytes(Hungry, batch())  # type: ignore[arg-type]
    assert kept == 2 * FLOAT
    assert peak == kept + 1_000_000


def test_every_round_has_a_block_of_every_method() -> None:
    counts = {"a": 0, "b": 0}

    class Counting:
        def __init__(self, name: str) -> None:
            self.name = name

        def step(self, x: Tensor, y: Tensor) -> None:
            counts[self.name] += 1

        def end_epoch(self) -> None: ...

    both = {name: Counting(name) for name in counts}
    found, steps = step_seconds(both, [batch()], budget=0.01)  # type: ignore[arg-type]
    assert len(found["a"]) == len(found["b"]) >= 7
    assert counts["a"] == counts["b"] == 15 + steps * len(found["a"])


def test_the_synthetic_labels_are_a_linear_function_of_the_samples() -> None:
    torch.manual_seed(0)
    batches = synthetic((2, 3), 4, batch_size=200, device=torch.device("cpu"), count=3)
    x = torch.cat([each for each, _ in batches]).flatten(1)
    y = torch.cat([each for _, each in batches])
    assert set(y.tolist()) == {0, 1, 2, 3}
    readout = torch.linalg.lstsq(x, nn.functional.one_hot(y).float()).solution
    assert ((x @ readout).argmax(1) == y).float().mean() > 0.8


def test_the_spread_is_median_and_quartiles() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0}
