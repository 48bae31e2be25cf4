"""`altmin train` under torchrun: one result, that of one process, also after a process has failed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks as processes
import torch
from commands import said

from altmin.cli import run, torchrun

TRAIN = [*("train", "--model", "mlp-1x16", "--batch-size", "13", "--limit", "220", "--epochs", "2", "--threads", "1")]
KEPT = ["--checkpoint", "run.altmin", "--checkpoint-every", "4", "--json", "run.json"]
VICTIM = """
import os, sys
from pathlib import Path
import altmin.cli.train
command = sys.modules["altmin.cli.train"]
each = command.EachBatch

def fails(show):
    def report(at):
        if at.batch == 11 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            Path("killed").touch()
            os.kill(os.getpid(), 9)
        return show(at)
    return each(report)

command.EachBatch = fails
altmin.cli.main()
"""
MISTAKES = {"record": ["train", "--record"]}


def under_torchrun(rank: int, folder: str) -> dict[str, Any]:
    """What one of two processes does and says."""
    os.chdir(folder)
    os.environ |= {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"
    found: dict[str, Any] = {"begun": said(*TRAIN, *KEPT), "again": said(*TRAIN, *KEPT)}
    return found | {name: said(*arguments) for name, arguments in MISTAKES.items()}


def figures(path: Path) -> Any:
    found = json.loads(path.read_text())
    return found["batches"], [{k: v for k, v in row.items() if k != "seconds"} for row in found["epochs"]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("torchrun")
    return folder, processes.run(2, under_torchrun, str(folder))


def test_the_first_process_alone_prints_and_writes_the_result(two: Any) -> None:
    folder, (first, second) = two
    code, out, error = first["begun"]
    assert (code, error) == (0, "")
    assert "wrote run.json" in out
    assert second["begun"] == (0, "", "")
    assert json.loads((folder / "run.json").read_text())["environment"]["ranks"] == 2


def test_two_processes_come_to_the_figures_of_one(two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32, 34 steps: sums in another order."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    try:
        assert run([*TRAIN, "--json", "run.json"]) == 0
    finally:
        torch.set_num_threads(threads)
    assert "ranks" not in json.loads(Path("run.json").read_text())["environment"]
    for row, expected in zip(figures(two[0] / "run.json")[1], figures(Path("run.json"))[1], strict=True):
        assert row["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)
        assert row["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=1e-3)


@pytest.mark.parametrize("name", ["again", *MISTAKES])
def test_what_several_processes_cannot_do_is_refused_by_all(two: Any, name: str) -> None:
    """A checkpoint that is there at the start is one of the mistakes."""
    assert [found[name][0] for found in two[1]] == [2, 2]


@pytest.mark.slow
def test_a_killed_process_costs_no_figure(two: Any, tmp_path: Path) -> None:
    """Process 1 is killed after batch 11, when batch 8 was saved; torchrun ends the other and starts both again, which
    go on from there to the very figures of the processes that were left alone."""
    (tmp_path / "victim.py").write_text(VICTIM)
    root = Path(__file__).resolve().parent.parent
    command = [*("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1")]
    ended = subprocess.run(
        [sys.executable, *command, "victim.py", *TRAIN, *KEPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert (tmp_path / "killed").exists()
    assert figures(tmp_path / "run.json") == figures(two[0] / "run.json")


def test_a_process_has_the_gpu_of_its_number_on_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # of something else
    monkeypatch.setenv("RANK", "3")
    assert (torchrun.count(), torchrun.first(), torchrun.device("cuda")) == (1, True, "cuda")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (torchrun.count(), torchrun.first()) == (4, False)
    assert [torchrun.device(name) for name in ("cuda", "cpu", "cuda:0")] == ["cuda:1", "cpu", "cuda:0"]
