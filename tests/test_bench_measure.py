"""What `altmin bench` measures can be worked out by hand for a net small enough."""

import math
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from altmin import methods
from altmin.paper.bench import measure
from altmin.paper.bench.measure import Batch, spread, step_bytes, step_seconds, synthetic

FLOAT = 4


def one_layer(name: str) -> Callable[[], methods.Method]:
    return lambda: methods.create(name, nn.Sequential(nn.Linear(1000, 10, bias=False)))


def batch(size: int = 4) -> Batch:
    return torch.randn(size, 1000), torch.zeros(size, dtype=torch.int64)


def test_kept_memory_is_parameters_gradients_and_state() -> None:
    weights = 1000 * 10 * FLOAT
    _, kept_by_adam, _ = step_bytes(one_layer("adam"), batch())
    _, kept_by_sgd, _ = step_bytes(one_layer("sgd"), batch())
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

    method, kept, peak = step_bytes(Hungry, batch())  # type: ignore[arg-type]
    assert isinstance(method, Hungry), "what was measured can be used further"
    assert kept == 2 * FLOAT
    assert peak == kept + 1_000_000


class Slow:
    """Counts its steps, and lets a clock go on by the seconds that each should take."""

    def __init__(self, clock: "Clock", seconds: float) -> None:
        self.clock, self.seconds, self.steps, self.ends = clock, seconds, 0, 0

    def step(self, x: Tensor, y: Tensor) -> None:
        self.steps += 1
        self.clock.now += self.seconds

    def end_epoch(self) -> None:
        self.ends += 1


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_every_round_has_a_block_of_every_method_about_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    quick, slow, slowest = both = [Slow(clock, seconds) for seconds in (1e-5, 1e-3, 0.5)]
    found, steps = step_seconds(dict(enumerate(both)), [batch()], budget=10.0)  # type: ignore[misc]
    assert steps == {0: 200, 1: 20, 2: 1}, "20 ms each, but no more than 200 steps and no fewer than one"
    rounds = len(found[0])
    assert rounds == len(found[1]) == len(found[2])
    assert rounds == math.ceil(10.0 / (200 * 1e-5 + 20 * 1e-3 + 0.5))
    assert quick.steps == 1 + 10 + 5 + 200 * rounds
    assert slowest.steps == 1 + 2 + 2 + rounds, "a step this long is not repeated just to get warm"
    assert slow.ends == 3 + rounds, "an offline method learns at the end of a block"
    for name, method in enumerate(both):
        assert found[name] == pytest.approx([method.seconds] * rounds)


def test_however_little_time_there_is_some_rounds_are_done_in_changing_order(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(), []
    monkeypatch.setattr(measure, "time", clock)

    class Noting(Slow):
        def end_epoch(self) -> None:
            seen.append(self)

    three = {name: Noting(clock, 1.0) for name in "abc"}
    found, _ = step_seconds(three, [batch()], budget=0.1)  # type: ignore[arg-type]
    assert {len(times) for times in found.values()} == {7}
    rounds = [tuple(seen[i : i + 3]) for i in range(9, len(seen), 3)]
    assert all(set(each) == set(three.values()) for each in rounds)
    assert len(set(rounds)) > 1


def test_a_pass_over_the_data_is_a_block_and_tells_which_samples_a_batch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    class Keeping(Slow):
        """Keeps variables for each sample, and takes a second for all of them at the end of a pass."""

        takes_rows = True
        rows: ClassVar[list[int]] = []

        def step(self, x: Tensor, y: Tensor, rows: Tensor | None = None) -> None:
            assert rows is not None
            self.rows += rows.tolist()
            super().step(x, y)

        def end_epoch(self) -> None:
            assert self.rows == list(range(5 * len(batch()[0]))), "every sample once"
            self.rows.clear()
            clock.now += 1.0
            super().end_epoch()

    both = {"online": Slow(clock, 0.1), "offline": Keeping(clock, 0.1)}
    found, steps = step_seconds(both, [batch()], budget=0.1, per_pass=5)  # type: ignore[arg-type]
    assert steps == {"online": 5, "offline": 5}
    assert found["online"] == pytest.approx([0.1] * 3)
    assert found["offline"] == pytest.approx([1.5 / 5] * 3)
    assert both["offline"].ends == 4, "a pass to warm up and three that count"


def test_the_synthetic_labels_are_a_linear_function_of_the_samples() -> None:
    torch.manual_seed(0)
    batches = synthetic((2, 3), 4, batch_size=200, device=torch.device("cpu"), count=3)
    x = torch.cat([each for each, _ in batches]).flatten(1)
    y = torch.cat([each for _, each in batches])
    assert set(y.tolist()) == {0, 1, 2, 3}
    readout = torch.linalg.lstsq(x, nn.functional.one_hot(y).float()).solution
    assert ((x @ readout).argmax(1) == y).float().mean() > 0.8


def test_of_synthetic_tokens_each_is_its_own_label() -> None:
    for x, y in synthetic((5,), 4, batch_size=100, device=torch.device("cpu"), count=3, tokens=True):
        assert x.shape == (100, 5)
        assert sorted(x.unique().tolist()) == [0, 1, 2, 3]
        assert torch.equal(x, y)


def test_the_spread_is_median_and_quartiles() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0}
