"""Runs and searches of several methods on several nets from one table."""

import json
from pathlib import Path

import pytest

from altmin.paper.reproduce import folders
from altmin.paper.reproduce.entries import Entry, runs_of
from altmin.paper.reproduce.search import Between
from altmin.paper.reproduce.settings import History

ENTRIES = [
    Entry(
        "sgd",
        {"lr": 0.1, "momentum": 0.0},
        {"lr": Between(0.01, 1.0)},
        search={"trials": 3, "run": {"epochs": 2}},
        paper={"mlp-1x4": 0.2},
    ),
    Entry("admm", run={"batch_size": 500, "label": "ADMM", "epochs": 3}),
]


def test_every_entry_runs_on_every_net_with_what_is_common_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    runs, searches = runs_of("fig9", ENTRIES, ["mlp-1x4", "mlp-2x4"], epochs=7)
    assert list(runs) == [("mlp-1x4", "sgd"), ("mlp-1x4", "ADMM"), ("mlp-2x4", "sgd"), ("mlp-2x4", "ADMM")]
    assert [run.epochs for run in runs.values()] == [7, 3, 7, 3], "its own come before what is common"
    assert (runs["mlp-1x4", "ADMM"].batch_size, runs["mlp-1x4", "sgd"].batch_size) == (500, 200)
    assert runs["mlp-1x4", "sgd"].options == {"lr": 0.1, "momentum": 0.0}
    assert [(each.run.model, each.run.epochs, each.trials, each.paper) for each in searches] == [
        ("mlp-1x4", 2, 3, {"lr": 0.2}),
        ("mlp-2x4", 2, 3, {}),
    ]


def test_a_run_has_the_options_that_its_search_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    _, searches = runs_of("fig9", ENTRIES, ["mlp-1x4"], epochs=7)
    path = folders.history(tmp_path, "fig9")
    path.parent.mkdir(parents=True)
    same = {"config": searches[0].template.config(), "at_batch": None, "seeds": [0], "seed": 0}
    rows = [
        {**same, "trial": n, "options": {"lr": lr}, "accuracy": [a]}
        for n, (lr, a) in enumerate([(0.3, 0.8), (0.4, 0.9)])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs, searches = runs_of("fig9", ENTRIES, ["mlp-1x4"], epochs=7)
    assert runs["mlp-1x4", "sgd"].options == {"lr": 0.4, "momentum": 0.0}
    assert len(searches[0].tried(History.read(path))) == 2, "the search is the same, whatever it has found"
    assert searches[0].start == {"lr": 0.1}
