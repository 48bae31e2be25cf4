"""Runs by names are what `fit` makes of the named method, model and data; together they are what each is alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from loop_cases import weights

from altmin.training import EachBatch, fit
from altmin.training.config import RunConfig
from altmin.training.runs import build, settings_of, train_run, train_runs

RUN = RunConfig("am-adam", "mlp-1x4", "mnist", {"lr": 0.01}, epochs=2, batch_size=20, eval_batches=[1], seed=3)


def images(n: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 1, 28, 28, generator=generator), torch.randint(10, (n,), generator=generator)


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "epochs": [{k: v for k, v in each.items() if k != "seconds"} for each in row["epochs"]]}


def test_a_run_is_what_fit_makes_of_the_named_parts() -> None:
    method = build(RUN)
    assert all(map(torch.equal, weights(method), weights(build(RUN))))
    assert not all(map(torch.equal, weights(method), weights(build(replace(RUN, seed=4)))))
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 20, "eval_batches": [1], "seed": 3}
    history = fit(method, images(50), {"test": images(30, 1)}, **settings)
    heard: list[int] = []
    row, trained = train_run(RUN, images(50), images(30, 1), [EachBatch(lambda at: heard.append(at.batch))])
    expected = {"seed": 3, "batches": history.batches, "epochs": history.epochs}
    assert without_times(row) == without_times(expected)
    assert all(map(torch.equal, weights(method), weights(trained)))
    assert heard == [1, 2, 3, 4, 5, 6]
    described = settings_of(replace(RUN, warmup=2, part="validation"), images(50))
    assert (described["train_samples"], described["evaluated_on"], described["warmup"]) == (50, "validation", 2)


@pytest.mark.parametrize("together", [False, True])
def test_several_runs_are_those_one_by_one(together: bool) -> None:
    runs = [replace(RUN, seed=seed, options={"lr": lr}) for seed, lr in ((3, 0.01), (4, 0.02), (5, 1e30))]
    shown: list[tuple[int, Any]] = []
    samples = images(50), images(30, 1)
    rows = train_runs(runs, *samples, lambda done, total, text: shown.append((done, total)), together=together)
    for run, row in zip(runs[:2], rows, strict=False):
        expected = train_run(run, *samples)[0]
        assert row["seed"] == run.seed
        for a, b in zip(row["epochs"], expected["epochs"], strict=True):
            assert a["train_loss"] == pytest.approx(b["train_loss"], abs=1e-4 if together else 0)
    assert "epoch 1" in rows[2]["diverged"]
    assert shown[-1] == ((6, 6) if together else (12, 18))
