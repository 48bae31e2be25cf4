"""`altmin train --layer-ranks`: what it refuses, what its files say, and with what a run goes on."""

import json
import os
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import ranks as processes
import torch
from commands import said

from altmin.cli import main, ranks

TRAIN = [*("train", "--model", "mlp-1x16", "--batch-size", "44", "--limit", "220", "--threads", "1")]
KEPT = ["--checkpoint", "kept.st", "--json"]


def torchrun(size: int, rank: int = 0) -> dict[str, str]:
    """What torchrun tells its processes, all on one machine."""
    names = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "RANK": rank, "LOCAL_RANK": rank}
    told = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
    return told | {name: str(value) for name, value in names.items()}


def in_layers(rank: int, folder: str) -> list[Any]:
    os.chdir(folder)
    os.environ |= torchrun(2, rank)
    return [said(*TRAIN, "--layer-ranks", "2", *KEPT, "run.json", "--save-config", "run.toml")]


def test_a_run_in_layers_says_how_it_was_spread_and_goes_on_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second epoch in one process, in the same parts, is that of a run in one process from the start: 10 steps in
    float32, sums in the same order, so rounding in the products alone."""
    (first, second) = (found[0] for found in processes.run(2, in_layers, str(tmp_path)))
    assert (first[0], first[2], second) == (0, "", (0, "", ""))
    monkeypatch.chdir(tmp_path)
    found = json.loads(Path("run.json").read_text())
    assert (found["config"]["layer_ranks"], found["config"]["micro_batches"], found["environment"]["ranks"]) == (
        2,
        4,
        2,
    )
    settings = tomllib.loads(Path("run.toml").read_text())
    assert (settings["layer_ranks"], settings["micro_batches"]) == (2, 4)

    threads = torch.get_num_threads()
    try:
        parts = ["--epochs", "2", "--micro-batches", "4"]
        refused = said(*TRAIN, "--epochs", "2", *KEPT, "whole.json", "--resume")
        assert said(*TRAIN, *parts, *KEPT, "on.json", "--resume")[0] == 0
        assert said(*TRAIN, *parts, "--json", "one.json")[0] == 0
    finally:
        torch.set_num_threads(threads)
    assert (refused[0], refused[1]) == (2, "")
    assert "its micro_batches is 4" in refused[2]
    assert not Path("whole.json").exists()
    on, one = (json.loads(Path(name).read_text())["epochs"] for name in ("on.json", "one.json"))
    assert [row["train_loss"] for row in on] == pytest.approx([row["train_loss"] for row in one], rel=1e-5)


REFUSED = {
    "backprop": (2, ["--layer-ranks", "2", "--method", "adam"], "--layer-ranks 2 is for the methods am-adam, am-ad"),
    "offline": (2, ["--micro-batches", "3", "--method", "am-adam-offline"], "--micro-batches 3 is for the methods"),
    "unknown": (2, ["--layer-ranks", "2", "--method", "am-adm"], "unknown method 'am-adm'; did you mean 'am-adam'?"),
    "odd": (3, ["--layer-ranks", "2"], "--layer-ranks 2 needs 2 processes or a multiple of that, and torchrun has st"),
    "none": (1, ["--layer-ranks", "2"], "--layer-ranks 2 needs 2 processes or a multiple of that, and there is one;"),
    "record": (1, ["--micro-batches", "2", "--record"], "--micro-batches 2 and --record, which records whole steps,"),
    "parts": (2, ["--micro-batches", "0"], "Invalid value for '--micro-batches'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_layers_cannot_do_is_refused_in_one_sentence_before_anything_is_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, arguments, words = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    for name, value in torchrun(size).items() if size > 1 else ():
        monkeypatch.setenv(name, value)
    code, out, error = said("train", "--limit", "20", *KEPT, "run.json", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"altmin: {words}")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_layers_are_those_of_methods_with_codes_of_a_mini_batch() -> None:
    assert ranks.layered() == [
        *("am-adam", "am-adam-printed", "am-mem", "am-mem-fitted", "am-mem-printed", "am-sgd", "am-sgd-printed")
    ]


@pytest.mark.parametrize(
    "gpus, advice", [(0, "finds 0 there; use --device cpu"), (2, "finds 2 there; start it with --nproc-per-node 2,")]
)
def test_all_processes_of_a_machine_say_the_same_of_gpus_that_are_too_few(
    gpus: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    texts = set()
    for rank in range(4):
        for name, value in torchrun(4, rank).items():
            monkeypatch.setenv(name, value)
        ranks.check_gpus("cpu")
        with pytest.raises(ValueError, match=advice) as found:
            ranks.check_gpus("cuda")
        texts.add(str(found.value))
    assert len(texts) == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    ranks.check_gpus("cuda")


@pytest.mark.parametrize("rank, printed", [(0, 1), (1, 0)])
def test_help_is_printed_by_the_first_process_alone(
    rank: int, printed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in torchrun(2, rank).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.count("Usage") == printed
