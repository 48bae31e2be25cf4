"""Measurements of `python -m reproduction speed`: what is timed, in which order, and what memory counts."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import methods, models
from altmin.runners import Recorded
from reproduction.speed import cases, measure, modes, run
from reproduction.speed.cases import Entry, Net, Variant, grown
from reproduction.speed.compiled import Compiled
from reproduction.speed.measure import Batch, spread, step_bytes, step_seconds, synthetic
from reproduction.speed.run import Plan, ratio

CASE = Net("mlp-2x100:50", "mlp-2x100", "mnist", 50)


@pytest.mark.parametrize(
    "what, expected",
    [
        ("depth", CASE._replace(model="mlp-6x100", size=6)),
        ("width", CASE._replace(model="mlp-2x300", size=300)),
        ("batch", CASE._replace(batch_size=150, size=150)),
    ],
)
def test_one_thing_becomes_three_times_as_large(what: str, expected: Net) -> None:
    assert grown(CASE, what, 3) == expected


def test_an_elman_net_grows_in_width_but_has_no_depth() -> None:
    net = Net("elman-15", "elman-15", "mnist-sequential", 200)
    assert grown(net, "width", 4).model == "elman-60"
    with pytest.raises(ValueError, match="needs a --model whose name tells its depth, such as mlp-2x100, not elman-15"):
        grown(net, "depth", 4)


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


def test_a_mode_with_a_plus_applies_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(modes.MODES, "compile", lambda method: f"compiled {method}")
    monkeypatch.setitem(modes.MODES, "graph", lambda method: f"recorded {method}")
    assert modes.apply("compile+graph", "adam") == "recorded compiled adam"  # type: ignore[arg-type, comparison-overlap]
    assert modes.apply("eager", "adam") == "adam"  # type: ignore[arg-type, comparison-overlap]


def test_backprop_is_compiled_and_on_a_cpu_am_too() -> None:
    net = models.mlp(4, (3,), 2)
    assert isinstance(modes.apply("compile", methods.create("adam", net)), Compiled)
    with pytest.raises(TypeError, match="only backprop is compiled"):
        modes.apply("compile", methods.create("dtp", net))
    assert isinstance(modes.apply("compile", methods.create("am-adam", net)), Recorded)


def test_activations_that_are_computed_again_take_less_memory_and_give_the_same_step() -> None:
    x, y = torch.randn(500, 64), torch.randint(10, (500,))
    built, peaks = [], []
    for mode in ("eager", "checkpoint"):
        torch.manual_seed(0)
        net = models.mlp(64, (64,) * 15, 10)
        method, _, peak = measure.step_bytes(lambda: modes.apply(mode, methods.create("adam", net)), (x, y))  # noqa: B023
        built.append(method)
        peaks.append(peak)
    for p, q in zip(*(method.model.parameters() for method in built), strict=True):
        torch.testing.assert_close(p, q)
    assert peaks[1] < 0.7 * peaks[0]  # weights and moments are a good part of both


@pytest.mark.parametrize(
    "method, net, error, reason",
    [
        ("am-adam", models.mlp(4, (3,), 2), TypeError, "only backprop keeps activations"),
        ("adam", nn.ModuleDict({"a": nn.Linear(4, 2)}), ValueError, "in an nn.Sequential, not in a ModuleDict"),
    ],
)
def test_activations_are_computed_again_by_backprop_in_sequential_models(
    method: str, net: nn.Module, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        modes.apply("checkpoint", methods.create(method, net))


@pytest.mark.parametrize("mode", ["graph", "compile+graph"])
def test_a_graph_needs_a_gpu(mode: str) -> None:
    with pytest.raises(ValueError, match="records CUDA graphs, which --device cpu does not have"):
        modes.check(mode, torch.device("cpu"))


NET = Net("mlp-1x4", "mlp-1x4", "mnist", 10)

CPU = torch.device("cpu")


def plan(*methods: str, ways: tuple[str, ...] = ("eager",), members: tuple[int, ...] = (1,)) -> Plan:
    return Plan([Variant(name, name, {}) for name in ("adam", *methods)], ways, members, 3, CPU)


def test_members_have_the_weights_of_seeds_that_follow_each_other() -> None:
    members = plan("am-adam").build(NET, Entry("am-adam", "eager", 3))
    for seed, member in enumerate(members, 3):
        torch.manual_seed(seed)
        expected = altmin.models.create("mlp-1x4", (1, 28, 28), 10)
        torch.testing.assert_close([*member.model.parameters()], [*expected.parameters()], rtol=0, atol=0)


def test_several_members_are_made_into_an_ensemble() -> None:
    made: Any = plan("am-adam").make(NET, Entry("am-adam", "eager", 3))
    assert isinstance(made, altmin.Ensemble)
    assert len(made) == 3


def test_what_cannot_be_measured_is_left_out_with_its_reason() -> None:
    possible, reasons = plan("am-adam-offline", ways=("eager", "compile"), members=(1, 64)).entries(NET)
    assert possible == [
        *(Entry("adam", "eager", 1), Entry("am-adam-offline", "eager", 1)),
        *(Entry("adam", "eager", 64), Entry("adam", "compile", 1)),
    ]
    assert "cannot be in an Ensemble" in reasons[Entry("am-adam-offline", "eager", 64)]
    assert "only backprop is compiled" in reasons[Entry("am-adam-offline", "compile", 1)]
    assert "only backprop is compiled" in reasons[Entry("adam", "compile", 64)]


def test_without_its_yardstick_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_am(method: Any) -> Any:
        if isinstance(method, altmin.AltMin):
            return method
        raise ValueError("its optimizer waits for the processor")

    monkeypatch.setitem(modes.MODES, "graph", only_am)
    possible, reasons = plan("am-adam", ways=("graph",)).entries(NET)
    assert possible == []
    why = "its optimizer waits for the processor"
    assert reasons == {
        Entry("adam", "graph", 1): why,
        Entry("am-adam", "graph", 1): f"adam, which it is measured against, cannot: {why}",
    }


def test_a_method_that_cannot_train_the_model_at_all_is_an_error() -> None:
    by_gradient = plan()._replace(variants=[Variant("am-adam", "am-adam", {"codes": "gradient"})])
    with pytest.raises(TypeError, match="Sign has no derivative"):
        by_gradient.entries(Net("binary-4", "binary-4", "mnist", 10))


def test_a_ratio_is_taken_round_by_round_before_its_median() -> None:
    one, other = Entry("am-adam", "eager", 1), Entry("adam", "eager", 1)
    times = {one: [1.0, 6.0, 4.0], other: [1.0, 2.0, 2.0]}
    assert ratio(times, one, other) == {"median": 2.0, "q1": 1.5, "q3": 2.5}
    assert ratio(times, one, other._replace(mode="graph")) is None


def test_the_work_done_is_reported_over_all_nets() -> None:
    seen: list[tuple[float, str]] = []
    nets = [NET, Net("mlp-1x3:5", "mlp-1x3", "mnist", 5)]
    rows, skipped = run.measure(plan(), nets, 0.2, lambda part, text: seen.append((part, text)))
    assert skipped == []
    assert [(row["net"], row["batch_size"]) for row in rows] == [("mlp-1x4", 10), ("mlp-1x3:5", 5)]
    first = [part for part, text in seen if text == "mlp-1x4, batches of 10"]
    second = [part for part, text in seen if text == "mlp-1x3, batches of 5"]
    assert len(first) + len(second) == len(seen)
    assert 0 <= min(first) < max(first) <= 0.5 <= min(second) < max(second) <= 1


def test_a_model_may_have_data_and_a_batch_size_of_its_own() -> None:
    found = cases.nets("lenet5, mlp-1x300@higgs,mlp-50x1024:128,elman-15@mnist-sequential:1024", "mnist", 200)
    assert [(net.model, net.data, net.batch_size) for net in found] == [
        ("lenet5", "mnist", 200),
        ("mlp-1x300", "higgs", 200),
        ("mlp-50x1024", "mnist", 128),
        ("elman-15", "mnist-sequential", 1024),
    ]


def test_a_label_goes_before_set_and_that_before_what_is_usual() -> None:
    found = cases.variants("am-adam,adam:fused=false:lr=0.5", ["lr=0.1", "am-adam.lr=0.2"], fused=True)
    assert [(v.label, v.method, v.options["lr"], v.options.get("fused")) for v in found] == [
        ("adam", "adam", 0.1, True),
        ("am-adam", "am-adam", 0.2, None),
        ("adam:fused=false:lr=0.5", "adam", 0.5, False),
    ]


def test_on_a_gpu_backprop_is_fused_unless_told_otherwise() -> None:
    assert [v.options["fused"] for v in cases.variants("sgd", [], fused=True)] == [True, True]
    assert [v.options["fused"] for v in cases.variants("sgd", [], fused=False)] == [False, False]
    assert [v.options["fused"] for v in cases.variants("sgd", ["adam.fused=false"], fused=True)] == [False, True]


def test_compiled_backprop_takes_the_same_steps(traced: None) -> None:
    def net() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))

    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    plain = methods.create("adam", net(), lr=0.1)
    fast = Compiled(methods.create("adam", net(), lr=0.1))  # type: ignore[arg-type]
    for _ in range(3):
        torch.testing.assert_close(fast.step(x, y).loss, plain.step(x, y).loss)
    torch.testing.assert_close([*plain.model.parameters()], [*fast.model.parameters()])
