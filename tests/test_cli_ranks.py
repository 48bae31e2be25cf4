"""`altmin train` under torchrun: one voice, one result, and a killed process costs no figure."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ranks as processes
import torch
import torch.distributed as dist
from commands import said

from altmin.cli import ranks, run
from altmin.runners.ranks import RankFailed

TRAIN = [*("train", "--model", "mlp-1x16", "--batch-size", "13", "--limit", "220", "--epochs", "2", "--threads", "1")]
KEPT = ["--checkpoint", "kept.st", "--checkpoint-every", "4", "--json", "run.json"]
VICTIM = """
import os, sys, time
from pathlib import Path
import altmin.cli
command = sys.modules["altmin.cli.train"]

def waits(tick):
    def report(at):
        if at.batch == 11 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            Path("victim.part").write_text(str(os.getpid()))
            os.replace("victim.part", "victim")
            time.sleep(600)
    return report

command.with_loss = waits
altmin.cli.main()
"""


def under_torchrun(rank: int, folder: str) -> dict[str, Any]:
    """What one of two processes does and says; the second run is one that torchrun has started again."""
    os.chdir(folder)
    os.environ |= {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"
    found: dict[str, Any] = {"begun": said(*TRAIN, *KEPT)}
    found["refused"] = said(*TRAIN, *KEPT)
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
    found["again"] = said(*TRAIN, *KEPT[:-1], "again.json")
    for name, arguments in MISTAKES.items():
        found[name] = said(*arguments)
    return found


MISTAKES = {
    "compare": ["compare"],
    "seeds": ["train", "--seeds", "2"],
    "record": ["train", "--record"],
    "device": ["train", "--device", "cuda:1"],
}


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


def test_a_file_that_exists_is_refused_at_first_and_gone_on_from_after_a_restart(two: Any) -> None:
    folder, (first, second) = two
    refused = "altmin: kept.st exists already: resume from it, or choose another checkpoint file\n"
    assert first["refused"] == (2, "", refused)
    assert second["refused"] == (2, "", "")
    assert (first["again"][0], second["again"]) == (0, (0, "", ""))
    assert figures(folder / "again.json") == figures(folder / "run.json")


@pytest.mark.parametrize(
    "what, words",
    [
        ("compare", "altmin compare runs in one process, and torchrun has started 2; leave it out"),
        (
            "seeds",
            "--seeds 2 trains several models, and torchrun has started 2 processes for one; leave one of them out",
        ),
        ("record", "--record records steps of one process, and torchrun has started 2 processes for one; leave one of"),
        ("device", "under torchrun each process has a GPU of its own; give --device cuda, not cuda:1"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_in_one_sentence(two: Any, what: str, words: str) -> None:
    _, (first, second) = two
    assert first[what][0] == second[what][0] == 2
    assert first[what][2].startswith(f"altmin: {words}")
    assert second[what][1:] == ("", "")


@pytest.mark.slow
def test_a_killed_process_costs_no_figure(two: Any, tmp_path: Path) -> None:
    """Process 1 is killed after batch 11, when batch 8 was kept; torchrun starts both again, which go on from there to
    the very figures of the processes that were left alone."""
    (tmp_path / "victim.py").write_text(VICTIM)
    root = Path(__file__).resolve().parent.parent
    command = [*("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1")]
    with (tmp_path / "log").open("wb") as log:
        torchrun = subprocess.Popen(
            [sys.executable, *command, "victim.py", *TRAIN, *KEPT],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )
    try:
        while not (tmp_path / "victim").exists():
            assert torchrun.poll() is None, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.05)
        os.kill(int((tmp_path / "victim").read_text()), signal.SIGKILL)
        assert torchrun.wait(100) == 0, (tmp_path / "log").read_text()[-2000:]
    finally:
        torchrun.terminate()  # which ends its processes too
    assert figures(tmp_path / "run.json") == figures(two[0] / "run.json")
    assert not list(tmp_path.glob(".kept*")), "an unfinished checkpoint was left"


@pytest.fixture
def first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RUN_ID": "none", "RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")


def test_a_text_is_said_by_one_process_and_once(first_of_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    monkeypatch.setattr(ranks, "_store", lambda: store)
    assert ranks.speaks("rank 1 of 2: no such file")
    monkeypatch.setenv("RANK", "1")
    assert not ranks.speaks("rank 0 of 2: no such file"), "the other has the same mistake"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not ranks.speaks("no such file"), "torchrun has started it again"
    assert ranks.speaks("another")


def test_who_was_stopped_by_another_speaks_only_if_that_one_does_not(
    first_of_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lost = dist.HashStore(), RankFailed("lost the others")
    monkeypatch.setattr(ranks, "_store", lambda: store)
    monkeypatch.setattr(ranks, "OTHERS", ranks.OTHERS / 20)
    assert ranks.speaks("lost the others", lost)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert ranks.speaks("no such file")
    assert not ranks.speaks("lost others", lost)


def test_without_torchrun_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # of something else
    monkeypatch.setenv("RANK", "3")
    assert (ranks.count(), ranks.first(), ranks.device("cuda:1")) == (1, True, "cuda:1")
    assert ranks.goes_on(Path("there"), False) is False
    assert ranks.speaks("all")


def test_a_process_has_the_gpu_of_its_number_on_its_machine(
    first_of_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert (ranks.device("cuda"), ranks.device("cpu")) == ("cuda:3", "cpu")
