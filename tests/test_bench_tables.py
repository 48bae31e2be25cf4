"""The tables of docs/speed.md say what the files say, and that a target is missed where it is."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import altmin

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
MARKS = "before\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, in a folder of its own."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    for name in ("common", "speed_table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import speed_table

    monkeypatch.setattr(speed_table, "HERE", tmp_path)
    for folder in ("benchmarks", "docs/images"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/speed.md").write_text(MARKS)
    return speed_table


def spread(median: float) -> dict[str, float]:
    return {"median": median, "q1": median - 0.1, "q3": median + 0.1}


def row(net: str, ratio: float, mode: str, **more: Any) -> dict[str, Any]:
    return {
        "net": net,
        "batch_size": 200,
        "method": "am-adam",
        "mode": mode,
        "members": 1,
        "time_ratio": spread(ratio),
        "ratio_to_compiled": spread(0.5),
        "ratio_to_variants": {"adam:fused=true": spread(ratio + 0.1)},
        "samples_per_second": 123456.0,
        "memory_ratio": 1.25,
        **more,
    }


def written(tables: Any, capsys: pytest.CaptureFixture[str], **parts: Any) -> tuple[str, str]:
    """The document after files for these parts, and what was said on the way."""
    for name, rows in parts.items():
        environment = {"gpu": "A GPU" if "cuda" in name else None, "cpu": "A CPU", "threads": 2}
        result = {"environment": environment, "config": {"modes": ["eager", "graph"]}, "results": rows}
        (tables.HERE / f"benchmarks/speed-{name.replace('_', '-')}.json").write_text(json.dumps(result))
    assert tables.fill_tables(tables.HERE / "docs/speed.md") == 0
    return (tables.HERE / "docs/speed.md").read_text(), capsys.readouterr().err


def test_a_target_is_met_or_missed_by_the_figure_before_rounding(tables: Any, capsys: Any) -> None:
    rows = [row("mlp-2x100", 1.2, "eager"), row("mlp-2x100", 0.7201, "graph"), row("lenet5", 1.0, "graph")]
    text, _ = written(tables, capsys, cuda_nets=rows)
    assert "A GPU; from [speed-cuda-nets.json](../benchmarks/speed-cuda-nets.json)." in text
    assert "| mlp-2x100 | 200 | eager | 1.20 (1.10 to 1.30) |  |  | 0.50 (0.40 to 0.60) | 123,456 | 1.25 |" in text
    assert "| mlp-2x100 | 200 | graph | 0.72 (0.62 to 0.82) | 0.72 | missed |" in text
    assert "| lenet5 | 200 | graph | 1.00 (0.90 to 1.10) | 1.00 | met |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text


def test_on_a_cpu_the_fused_yardstick_has_its_own_target(tables: Any, capsys: Any) -> None:
    text, _ = written(tables, capsys, cpu_nets=[row("mlp-2x100", 0.9, "eager"), row("lenet5", 1.4, "eager")])
    assert "| mlp-2x100 | 200 | 0.90 (0.80 to 1.00) | 1.00 | met | 1.00 (0.90 to 1.10) | 1.10 | met |" in text
    assert "| lenet5 | 200 | 1.40 (1.30 to 1.50) | 1.00 | missed | 1.50 (1.40 to 1.60) |  |  |" in text
    assert "A CPU, 2 threads; from" in text


def test_long_runs_and_growth_are_shown_with_their_pictures(tables: Any, capsys: Any) -> None:
    (tables.HERE / "docs/images/speed-cuda-depth.png").touch()
    long = [{"name": "higgs-epoch", "seconds": 4.5}, {"name": "many-settings", "seconds": 9.0, "ratio": 4.25}]
    grown = [row("mlp-2x100", size / 10, mode, size=size) for mode in ("eager", "graph") for size in (20, 4)]
    text, _ = written(tables, capsys, cuda_long=long, cuda_depth=grown, cuda_width=grown)
    assert "| an epoch of HIGGS size, mlp-1x300, seconds | 4.50 | 5 | met |" in text
    assert "| 64 settings over one, time of an epoch | 4.25 | 4 | missed |" in text
    assert (
        "| am-adam / adam, depth | 4 | 20 |\n| --- | --- | --- |\n| eager | 0.40 | 2.00 |\n| graph | 0.40 | 2.00 |"
        in text
    )
    assert "(images/speed-cuda-depth.png)" in text
    assert "(images/speed-cuda-width.png)" not in text, "there is no such picture"


def test_a_file_that_is_missing_is_told_with_the_command_that_makes_it(tables: Any, capsys: Any) -> None:
    text, said = written(tables, capsys)
    sentence = "Not measured yet: `python experiments/speed.py cuda nets` writes `benchmarks/speed-cuda-nets.json`."
    assert sentence in text
    assert f"speed.py: {sentence}\n" in said


def test_a_document_without_a_place_for_the_results_is_left_alone(tables: Any, capsys: Any) -> None:
    document = tables.HERE / "docs/speed.md"
    document.write_text("<!-- results:end --> <!-- results:begin -->")
    assert tables.fill_tables(document) == 2
    assert "put the lines <!-- results:begin --> and" in capsys.readouterr().err
    assert document.read_text() == "<!-- results:end --> <!-- results:begin -->"


def test_every_target_is_of_a_net_that_is_measured(tables: Any) -> None:
    assert set(tables.GRAPH) == {*tables.NETS, tables.RECURRENT}
    assert set(tables.EAGER_CPU) == set(tables.CPU_NETS) <= set(tables.NETS)
    assert set(tables.FUSED_CPU) < set(tables.CPU_NETS)


def test_long_runs_are_timed_whole_and_settings_without_their_start(
    tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in takes 5 seconds to start, and for an epoch 1 second and another for each 32 members."""
    monkeypatch.delitem(sys.modules, "speed_long", raising=False)
    import speed_long

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    clock, calls = Clock(), []

    def train(
        method: Any, x: Tensor, y: Tensor, *, batch_size: int, epochs: int, seeds: list[int], shuffle: str
    ) -> Tensor:
        members = len(method) if isinstance(method, list) else 1
        calls.append((members, len(x), batch_size, epochs, len(seeds)))
        clock.now += 5 + epochs * (1 + members // 32)
        return torch.zeros(epochs, members)

    monkeypatch.setattr(speed_long, "time", clock)
    monkeypatch.setattr(speed_long, "DEVICE", "cpu")
    monkeypatch.setattr(speed_long, "HIGGS_ROWS", 100 * 450)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(altmin, "Ensemble", list, raising=False)
    monkeypatch.setattr(speed_long, "train_on_device", train)
    speed_long.measure(tmp_path / "long.json", quick=True)
    higgs, seeds, settings = json.loads((tmp_path / "long.json").read_text())["results"]
    assert (higgs["seconds"], higgs["updates"], higgs["losses"]) == (6.0, 3, [[0.0]])
    assert (seeds["seconds"], len(seeds["losses"][0])) == (6.0, 5)
    assert (settings["seconds"], settings["seconds_of_one"], settings["ratio"]) == (3.0, 1.0, 3.0)
    assert calls[1] == (1, 450, 200, 1, 1)
    assert calls[3] == (5, 50_000, 200, 1, 5)
    assert [call[0] for call in calls[4:]] == [64, 64, 64, 1, 1, 1]
    assert set(tables.LONG) == {row["name"] for row in (higgs, seeds, settings)}
