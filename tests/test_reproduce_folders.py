"""In a clone results lie beside what is committed; an installed package writes into the current folder."""

import importlib
from pathlib import Path

import pytest

from altmin.paper.reproduce import folders

ROOT = Path(__file__).resolve().parent.parent


def test_in_a_clone_results_and_histories_lie_beside_what_is_committed() -> None:
    assert ROOT / "benchmarks/reproduce" == folders.RESULTS
    assert folders.history(folders.RESULTS, "fig1") == ROOT / "benchmarks/reproduce/search/fig1.jsonl"


def test_elsewhere_results_go_to_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    try:
        assert Path("reproduce") == importlib.reload(folders).RESULTS
    finally:
        monkeypatch.undo()
        importlib.reload(folders)
