"""Measurements of `python -m reproduction speed`: what is timed, in which order, what memory counts, what is shown."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from altmin import Recorded, methods, models
from reproduction.__main__ import run
from reproduction.speed import modes
from reproduction.speed.compiled import Compiled
from reproduction.speed.measure import SETTLED, Batch, step_bytes, step_seconds
from reproduction.speed.run import Net, Plan, Variant
from reproduction.speed.run import measure as measured

FLOAT, CPU = 4, torch.device("cpu")
NET = Net.parse("mlp-1x4:10")


def batch(size: int = 4) -> Batch:
    return torch.randn(size, 1000), torch.zeros(size, dtype=torch.int64)


@pytest.mark.parametrize("name, times", [("adam", 4), ("sgd", 3)])
def test_kept_memory_is_parameters_gradients_and_state(name: str, times: int) -> None:
    layer = nn.Linear(1000, 10, bias=False)
    _, kept, _ = step_bytes(lambda: methods.create(name, nn.Sequential(nn.Linear(1000, 10, bias=False))), batch())
    assert kept == times * layer.weight.numel() * FLOAT + (FLOAT if name == "adam" else 0), "and the step's number"


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

    _, kept, peak = step_bytes(Hungry, batch())  # type: ignore[arg-type]
    assert (kept, peak) == (2 * FLOAT, 2 * FLOAT + 1_000_000)


def test_backprop_is_compiled_and_on_a_cpu_am_too() -> None:
    net = models.mlp(4, (3,), 2)
    assert isinstance(modes.apply("compile", methods.create("adam", net)), Compiled)
    with pytest.raises(TypeError):
        modes.apply("compile", methods.create("dtp", net))
    if "compile" in modes.allowed(CPU)[1]:
        assert isinstance(modes.apply("compile", methods.create("am-adam", net)), Recorded)


def test_what_cannot_be_measured_is_left_out_with_its_reason() -> None:
    variants = [Variant(name, name, {}) for name in ("adam", "am-adam-offline")]
    plan = Plan(variants, ["eager", "checkpoint"], [], 3, CPU)
    with pytest.warns(UserWarning, match="am-adam-offline is not measured in mode checkpoint"):
        rows, skipped = measured(plan, [NET, Net.parse("mlp-1x3:5")], 0.2, lambda *_: None)
    assert [(row["net"], row["method"], row["mode"]) for row in rows] == [
        (net, *entry)
        for net in ("mlp-1x4:10", "mlp-1x3:5")
        for entry in (("adam", "eager"), ("am-adam-offline", "eager"), ("adam", "checkpoint"))
    ]
    assert {(row["method"], row["mode"]) for row in skipped} == {("am-adam-offline", "checkpoint")}
    (yardstick,) = (row for row in rows[:3] if (row["method"], row["mode"]) == ("adam", "eager"))
    assert yardstick["time_ratio"] == {"median": 1.0, "q1": 1.0, "q3": 1.0}
    assert yardstick["memory_ratio"] == 1.0


def test_the_command_writes_what_it_has_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model=mlp-1x4:10,mlp-1x4@higgs:5", "--methods=am-adam", "--modes=eager", "--seconds=0.2"]
    assert run(["speed", *arguments, "--json", str(tmp_path / "s.json")]) == 0
    result = json.loads((tmp_path / "s.json").read_text())
    assert [(row["data"], row["batch_size"], row["method"]) for row in result["results"]] == [
        (*net, method) for net in (("mnist", 10), ("higgs", 5)) for method in ("adam", "am-adam")
    ]
    assert "| mlp-1x4@higgs:5 | eager | am-adam |" in capsys.readouterr().out


def test_where_a_dear_step_comes_again_blocks_are_whole_periods_after_the_first_steps():
    class Counting:
        steps, blocks = 0, []

        def step(self, x, y):
            self.steps += 1

        def end_epoch(self):
            self.blocks.append(self.steps)

    method, batch = Counting(), (torch.zeros(1), torch.zeros(1))
    _, steps = step_seconds({"it": method}, [batch], 0.01, period=40)
    assert steps["it"] % 40 == 0
    assert method.blocks[0] == SETTLED
    assert {b - a for a, b in zip(method.blocks[3:], method.blocks[4:], strict=False)} == {steps["it"]}
