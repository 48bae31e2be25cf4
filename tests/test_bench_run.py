"""What is measured on a net: every variant in every mode that can be, with members that start differently."""

from typing import Any

import pytest
import torch

import altmin
from altmin.paper.bench import modes
from altmin.paper.bench.cases import Entry, Net, Variant
from altmin.paper.bench.run import Plan, measure, ratio

NET = Net("mlp-1x4", "mlp-1x4", "mnist", 10)
CPU = torch.device("cpu")


def plan(*methods: str, ways: tuple[str, ...] = ("eager",), members: tuple[int, ...] = (1,)) -> Plan:
    return Plan([Variant(name, name, {}) for name in ("adam", *methods)], ways, members, 3, CPU)


def test_members_have_the_weights_of_seeds_that_follow_each_other() -> None:
    members = plan("am-adam").build(NET, Entry("am-adam", "eager", 3))
    for seed, member in enumerate(members, 3):
        torch.manual_seed(seed)
        expected = altmin.models.create("mlp-1x4", (1, 28, 28), 10)
        for ours, theirs in zip(member.model.parameters(), expected.parameters(), strict=True):
            assert torch.equal(ours, theirs)


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
    rows, skipped = measure(plan(), nets, 0.2, lambda part, text: seen.append((part, text)))
    assert skipped == []
    assert [(row["net"], row["batch_size"]) for row in rows] == [("mlp-1x4", 10), ("mlp-1x3:5", 5)]
    first = [part for part, text in seen if text == "mlp-1x4, batches of 10"]
    second = [part for part, text in seen if text == "mlp-1x3, batches of 5"]
    assert len(first) + len(second) == len(seen)
    assert 0 <= min(first) < max(first) <= 0.5 <= min(second) < max(second) <= 1
