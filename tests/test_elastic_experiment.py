"""experiments/elastic.py: the page holds what the file says, and every run that lost a process came to its figures."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from altmin.training import checkpoint

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks/elastic.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    yield import_module("elastic")
    sys.modules.pop("elastic")


def test_the_page_holds_the_table_of_the_file(experiment: Any) -> None:
    page = (ROOT / "docs/scaling.md").read_text()
    (there,) = re.findall(r"<!-- elastic:begin -->\n(.*?)<!-- elastic:end -->", page, re.DOTALL)
    assert there == experiment.text(), "run `python experiments/elastic.py --table`"


def test_every_run_that_lost_a_process_came_to_the_figures_of_one_that_did_not(experiment: Any) -> None:
    whole = [row for row in ROWS if row["what"] == "undisturbed"]
    for row in ROWS:
        if row["what"] == "disturbed":
            assert row["lost"]
            for key in ("train_loss", "test_accuracy", "digest"):
                assert row[key] == whole[0][key], f"run {row['number']}"
        if row["what"] == "moved":
            assert row["to_ranks"] != row["ranks"]
            for key in ("train_loss", "test_accuracy"):
                assert row[key] == pytest.approx(whole[0][key], rel=experiment.TOLERANCE, abs=experiment.TOLERANCE)


def figures(experiment: Any, folder: Path, weight: float, moment: float) -> Any:
    folder.mkdir()
    rows = [{"epoch": 1, "train_loss": 0.5, "test_accuracy": 0.75, "seconds": 1.0}]
    (folder / "run.json").write_text(json.dumps({"epochs": rows}))
    state = {"model": {"w": torch.tensor([weight])}, "method": [{"m": torch.tensor([moment])}], "random": {}}
    checkpoint.save(folder / "run.safetensors", {**state, "history": {"seconds": str(folder)}})
    return experiment.figures(folder)


def test_figures_are_equal_where_weights_and_optimizer_are_bit_for_bit(experiment: Any, tmp_path: Path) -> None:
    first = figures(experiment, tmp_path / "a", 1.0, 2.0)
    assert first == figures(experiment, tmp_path / "b", 1.0, 2.0), "times do not count"
    assert (first["train_loss"], first["test_accuracy"]) == ([0.5], [0.75])
    assert first["digest"] != figures(experiment, tmp_path / "c", 1.0 + 2**-23, 2.0)["digest"]
    assert first["digest"] != figures(experiment, tmp_path / "d", 1.0, 2.0 + 2**-22)["digest"]


def test_the_processes_that_a_process_has_started_are_known_and_whether_they_run(experiment: Any) -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); sys.stdin.read(1); "
    )
    code += "p.kill(); print('killed', flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdin
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert experiment.workers(parent) == [pid]
        parent.stdin.write(b"x")
        parent.stdin.flush()
        parent.stdout.readline()
        while experiment.alive(pid):  # until the signal has come
            pass
        assert experiment.workers(parent) == [], "its parent has not waited for it, but it runs no more"
        parent.stdin.close()
