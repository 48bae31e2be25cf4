"""`speed` measures what it was asked to, against the right yardstick: a clock that methods move shows it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import methods
from altmin.calculus.context import LOCAL, Context
from altmin.methods import protocol
from altmin.methods.backprop import Backprop
from reproduction.__main__ import run
from reproduction.speed import measure, modes, picture
from reproduction.speed import run as running


class Clock:
    """Time passes only where a stand-in says so."""

    now = 0.0
    rounds = False
    """Whether the last step was told to round its products."""

    def perf_counter(self) -> float:
        return self.now


class Timed(Backprop):
    """Stands in for a method: a step takes `cost` seconds for each sample of a batch and each layer of the net."""

    def __init__(self, clock: Clock, model: nn.Module, cost: float):
        super().__init__(model, torch.optim.SGD(model.parameters()))
        self.clock, self.cost = clock, cost
        self.layers = len([m for m in model.modules() if isinstance(m, nn.Linear)])

    def step(self, x: Tensor, y: Tensor, context: Context = LOCAL) -> None:  # type: ignore[override]
        torch.empty(1000)  # for the profiler to see
        self.clock.rounds = context.bf16
        self.clock.now += self.cost * len(x) * self.layers


class AlsoTimed:
    """As `Timed`, and no backprop."""

    def __init__(self, inner: Timed):
        self.model, self.step, self.end_epoch, self.inner = inner.model, inner.step, inner.end_epoch, inner


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """adam costs 2, adam:fused=true 1, am-adam 3, in milliseconds; a recorded step a tenth, a compiled one a half."""
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    monkeypatch.setattr(protocol, "_FACTORIES", {})

    @methods.register("adam")
    def adam(model: nn.Module, fused: bool = False) -> Any:
        return Timed(clock, model, 1e-3 if fused else 2e-3)

    @methods.register("am-adam")
    def am_adam(model: nn.Module, lr: float = 0.1) -> Any:
        return AlsoTimed(Timed(clock, model, 3e-3))

    def cheaper(method: Any, factor: float) -> Any:
        timed = getattr(method, "inner", method)
        timed.cost *= factor
        return method

    class Ensemble:
        """As many members take as long as half of them would, and one more."""

        def __init__(self, crew: list[Any]) -> None:
            seeds = {float(next(each.model.parameters()).detach().sum()) for each in crew}
            assert len(seeds) == len(crew), "members that start alike"
            one = getattr(crew[0], "inner", crew[0])
            one.cost *= (len(crew) + 1) / 2
            self.inner, self.step, self.end_epoch = one, one.step, one.end_epoch

    def compiled(method: Any) -> Any:
        if not isinstance(method, Timed):
            raise TypeError("only backprop is compiled")
        return cheaper(method, 0.5)

    monkeypatch.setattr(running, "Ensemble", Ensemble)
    monkeypatch.setitem(modes.MODES, "graph", lambda method: cheaper(method, 0.1))
    monkeypatch.setitem(modes.MODES, "compile", compiled)
    monkeypatch.setitem(modes.MODES, "checkpoint", lambda method: cheaper(method, 2.0))
    monkeypatch.setattr(modes, "check", lambda mode, device: None)
    return clock


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(line: str, code: int = 0) -> dict[str, Any]:
        assert run(["speed", *line.split(), "--seconds", "0.5", "--json", "b.json"]) == code
        return json.loads(Path("b.json").read_text()) if code == 0 else {}

    return call


def by_entry(result: dict[str, Any]) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(row["method"], row["mode"], row["members"]): row for row in result["results"]}


def exactly(value: float) -> Any:
    return pytest.approx({"median": value, "q1": value, "q3": value})


WRONG = {
    "--model mlp-2x100:128@higgs": "should be NAME, NAME@DATA, NAME:BATCH or NAME@DATA:BATCH",
    "--model mlp-2x100:0": "should have a batch size from 1, as in mlp-2x100:128, not '0'",
    "--model mlp-2x100:many": "not 'many'",
    "--model mlp-2x100@mnits": "unknown data set 'mnits'; did you mean 'mnist'?",
    "--model elman-15": "elman-15 reads sequences of steps x features",
    "--methods adam:fused": "NAME=VALUE",
    "--methods adam:fuse=true": "unknown option of method 'adam', 'fuse'; did you mean 'fused'?",
    "--methods adam:fused=yes": "true or false",
    "--methods adan:lr=1": "unknown method 'adan'; did you mean 'adam'?",
    "--modes grph": "unknown mode 'grph'; did you mean 'graph'?",
    "--modes eager,graph": "--modes graph records CUDA graphs, which --device cpu does not have; choose --device cuda",
    "--modes compile+graph": "--modes compile+graph records CUDA graphs",
    "--ensemble 0,8": "whole numbers from 1",
    "--ensemble few": "few",
    "--precision fp8": "unknown precision 'fp8'",
    "--grow height": "unknown growth in --grow, 'height'. The choices are: batch, depth, members",
    "--grow depth --model lenet5": "needs a --model whose name tells its depth, such as mlp-2x100, not lenet5",
    "--grow width --model lenet5": "--grow width needs a --model whose name tells its width",
    "--grow depth --model mlp-2x100,lenet5": "give one --model as its base, not mlp-2x100,lenet5",
    "--grow depth --sizes 0": "whole numbers from 1",
    "--sizes 1,2": "say what grows too: --grow depth, width, batch or members",
    "--grow members --ensemble 1,2": "leave --ensemble out",
    "--plot ratios.txt": "ratios.txt should end in .png or .svg or .pdf",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_gets_one_sentence_and_leaves_nothing(
    line: str, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(line, code=2)
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("reproduction: ")
    assert WRONG[line] in error
    assert not list(Path().iterdir())


def test_each_ratio_is_to_the_yardstick_of_the_same_mode_and_members(clock: Clock, bench: Any) -> None:
    line = "--model mlp-1x4 --methods am-adam,adam:fused=true --modes eager,graph,compile --ensemble 3"
    with pytest.warns(UserWarning, match="not measured in mode compile"):
        result = bench(line + " --batch-size 10")
    rows = by_entry(result)
    variants = {"adam": 2.0, "adam:fused=true": 1.0, "am-adam": 3.0}
    factors = {"eager": 1.0, "graph": 0.1, "compile": 0.5}
    assert set(rows) == {
        (label, mode, n)
        for label in variants
        for mode in factors
        for n in (1, 3)
        if mode != "compile" or (n == 1 and label != "am-adam")
    }
    for (label, mode, n), row in rows.items():
        seconds = 1e-3 * variants[label] * factors[mode] * (n + 1) / 2 * 10 * 2
        assert row["step_seconds"] == exactly(seconds)
        assert row["member_step_seconds"] == exactly(seconds / n)
        assert row["samples_per_second"] == pytest.approx(10 * n / seconds)
        assert row["time_ratio"] == exactly(variants[label] / 2)
        assert row["ratio_to_variants"] == {"adam:fused=true": exactly(variants[label])}
        assert row["ratio_to_one_member"] == exactly((n + 1) / 2)
        if n == 1:
            assert row["ratio_to_compiled"] == exactly(variants[label] * factors[mode] / (2 * 0.5))
        else:
            assert row["ratio_to_compiled"] is None, "an ensemble is not compiled"
        assert row["rounds"] >= measure.FEWEST
        assert row["memory_ratio"] == row["peak_bytes"] / rows["adam", mode, n]["peak_bytes"]
    assert {(s["method"], s["mode"], s["members"], s["reason"]) for s in result["skipped"]} == {
        ("am-adam", "compile", 1, "only backprop is compiled"),
        ("am-adam", "compile", 3, "only backprop is compiled"),
        ("adam", "compile", 3, "only backprop is compiled"),
        ("adam:fused=true", "compile", 3, "only backprop is compiled"),
    }


def test_the_json_says_what_was_measured(clock: Clock, bench: Any) -> None:
    result = bench(
        "--model mlp-1x4@higgs:5,mlp-2x4 --methods am-adam --set am-adam.lr=0.5 --batch-size 10 --modes eager"
    )
    assert list(result) == ["data", "models", "methods", "seed", "config", "environment", "skipped", "results"]
    assert result["models"] == ["mlp-1x4@higgs:5", "mlp-2x4"]
    assert result["methods"] == ["adam", "am-adam"]
    assert result["config"] == {
        "batch_size": 10,
        "seconds": 0.5,
        "samples": None,
        "yardstick": "adam",
        "options": {"adam": {"fused": False}, "am-adam": {"lr": 0.5}},
        "modes": ["eager"],
        "ensemble": [1],
        "precision": "float32",
        "grow": None,
    }
    keys = ("net", "model", "data", "batch_size", "method", "mode", "members")
    assert [tuple(row[key] for key in keys) for row in result["results"]] == [
        ("mlp-1x4@higgs:5", "mlp-1x4", "higgs", 5, "adam", "eager", 1),
        ("mlp-1x4@higgs:5", "mlp-1x4", "higgs", 5, "am-adam", "eager", 1),
        ("mlp-2x4", "mlp-2x4", "mnist", 10, "adam", "eager", 1),
        ("mlp-2x4", "mlp-2x4", "mnist", 10, "am-adam", "eager", 1),
    ]
    assert result["results"][0]["step_seconds"] == exactly(2e-3 * 5 * 2), "five samples, two layers"
    assert "size" not in result["results"][0]


def test_the_picture_is_drawn_from_what_the_json_holds(
    clock: Clock, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(result: dict[str, Any], file_format: str) -> bytes:
        return json.dumps([file_format, result]).encode()

    monkeypatch.setattr(picture, "draw", draw)
    result = bench("--model mlp-1x4 --methods am-adam --batch-size 10 --plot ratios.svg")
    assert json.loads(Path("ratios.svg").read_text()) == ["svg", result]
    shown = capsys.readouterr().out
    assert "60.000 (60.000 to 60.000)" in shown, "ten samples, two layers, 3 ms"
    assert "1.50 (1.50 to 1.50)" in shown


@pytest.mark.parametrize(
    "what, sizes, models, seconds",
    [
        ("depth", [2, 6], ["mlp-2x4", "mlp-6x4"], [3, 7]),
        ("width", [4, 12], ["mlp-2x4", "mlp-2x12"], [3, 3]),
        ("batch", [10, 30], ["mlp-2x4", "mlp-2x4"], [3, 9]),
        ("members", [1, 3], ["mlp-2x4", "mlp-2x4"], [3, 6]),
    ],
)
def test_what_grows_grows_by_the_factors(
    what: str, sizes: list[int], models: list[str], seconds: list[float], clock: Clock, bench: Any
) -> None:
    result = bench(f"--grow {what} --model mlp-2x4 --sizes 1,3 --batch-size 10")
    rows = [row for row in result["results"] if row["method"] == "adam"]
    assert result["config"]["grow"] == what
    assert [row["size"] for row in rows] == sizes
    assert [row["model"] for row in rows] == models
    assert [row["step_seconds"]["median"] for row in rows] == pytest.approx([2e-3 * 10 * s for s in seconds])


def test_a_machine_that_does_other_things_is_noticed(clock: Clock, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = Timed.step
    calls = iter(range(10**9))

    def step(self: Timed, x: Tensor, y: Tensor) -> None:
        steady(self, x, y)
        clock.now += 1.0 if next(calls) % 2 else 0.0

    monkeypatch.setattr(Timed, "step", step)
    with pytest.warns(
        UserWarning, match="the times of adam itself vary by more than a half on mlp-1x4: something else"
    ):
        bench("--model mlp-1x4 --methods adam --batch-size 10")


def test_a_precision_holds_while_methods_are_built_and_run(
    clock: Clock, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @contextmanager
    def using(name: str) -> Iterator[Context]:
        seen.append(f"in {name}")
        yield Context(bf16=name == "bf16")
        seen.append("out")

    def measure_net(plan: Any, *given: Any) -> list[Any]:
        seen.append("measured")
        return real(plan, *given)

    real = running.measure_net
    monkeypatch.setattr("altmin.runners.precision.using", using)
    monkeypatch.setattr(running, "measure_net", measure_net)
    assert bench("--model mlp-1x4 --methods am-adam --precision bf16")["config"]["precision"] == "bf16"
    assert seen == ["in bf16", "measured", "out"]
    assert clock.rounds


@pytest.mark.cuda
def test_on_a_gpu_the_yardstick_is_fused_and_takes_turns_with_its_variant(bench: Any) -> None:
    result = bench("--device cuda --model mlp-1x64 --methods am-adam,adam:fused=false")
    options = {label: given.get("fused") for label, given in result["config"]["options"].items()}
    assert options == {"adam": True, "am-adam": None, "adam:fused=false": False}
    rows = by_entry(result)
    assert len({row["rounds"] for row in rows.values()}) == 1
    weights = 4 * (784 * 64 + 64 + 64 * 10 + 10)
    assert rows["adam", "eager", 1]["kept_bytes"] > 4 * weights, "weights, gradients and two moments"


def test_bench_sets_every_method_against_adam(bench: Any) -> None:
    result = bench("--model mlp-1x16,mlp-2x8 --methods sgd --batch-size 20 --modes eager")
    assert [(row["model"], row["method"]) for row in result["results"]] == [
        ("mlp-1x16", "adam"), ("mlp-1x16", "sgd"), ("mlp-2x8", "adam"), ("mlp-2x8", "sgd")
    ]  # fmt: skip
    for row in result["results"]:
        assert row["rounds"] >= 7
        if row["method"] == "adam":
            assert row["time_ratio"] == {"median": 1.0, "q1": 1.0, "q3": 1.0}
            assert row["memory_ratio"] == 1.0
    assert list(result["environment"])[:3] == ["python", "torch", "altmin"]


def test_by_default_backprop_runs_in_every_way_that_the_machine_allows(
    clock: Clock, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest is what all are set against; a way that fails is left out, with a warning."""

    def fails(*_: Any) -> None:
        raise ValueError("torch.compile cannot compile this step: no; run it as it is")

    def four_times_as_fast(method: Any) -> Any:
        if not hasattr(method, "cost"):
            raise TypeError("only backprop is compiled")
        if method.cost == 1e-3:
            method.step = fails
        method.cost /= 4
        return method

    monkeypatch.setattr("reproduction.speed.compiled.check", lambda device: None)
    monkeypatch.setitem(modes.MODES, "compile", four_times_as_fast)
    result = bench("--model mlp-2x4 --batch-size 10")
    (row,) = result["skipped"]
    assert (row["method"], row["mode"]) == ("adam:fused=true", "compile")
    assert row["reason"] == "torch.compile cannot compile this step: no; run it as it is"
    assert result["config"]["modes"] == ["eager", "checkpoint", "compile"]
    found = {(row["method"], row["mode"]): row for row in result["results"]}
    assert list(found) == [
        ("adam", "eager"), ("am-adam", "eager"), ("adam:fused=true", "eager"),
        ("adam", "checkpoint"), ("adam:fused=true", "checkpoint"), ("adam", "compile"),
    ]  # fmt: skip
    for row in found.values():
        assert row["best_backprop"] == "adam, compile"
    assert found["am-adam", "eager"]["ratio_to_best"] == exactly(6.0)
    assert found["adam:fused=true", "eager"]["ratio_to_best"] == exactly(2.0)


@pytest.mark.parametrize(
    "device, has_compiler, expected",
    [
        ("cpu", True, (["eager"], ["checkpoint", "compile"])),
        ("cpu", False, (["eager"], ["checkpoint"])),
        ("cuda", True, (["eager", "graph"], ["checkpoint", "compile", "compile+graph"])),
        ("cuda", False, (["eager", "graph"], ["checkpoint"])),
    ],
)
def test_the_modes_that_a_device_allows(
    device: str, has_compiler: bool, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(device: torch.device) -> None:
        if not has_compiler:
            raise ValueError("no compiler")

    monkeypatch.setattr("reproduction.speed.compiled.check", check)
    assert modes.allowed(torch.device(device)) == expected


def test_a_pass_over_so_many_samples_is_measured_as_a_whole(
    clock: Clock, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result = bench("--model mlp-1x4 --methods am-adam --batch-size 10 --samples 25 --seconds 0.1")
    assert result["config"]["samples"] == 25
    assert {row["steps_per_round"] for row in result["results"]} == {3}, "the last batch is part of the pass"
    shown = capsys.readouterr().out
    assert "s per pass" in shown
    assert "0.18 (0.18 to 0.18)" in shown, "three steps of 60 ms"
