"""`fit_ensemble`: every member gets the rows that `fit` gives it alone."""

import json
import re
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import Ensemble, methods, models
from altmin.common.errors import Diverged
from altmin.training import EachBatch, Progress, fit, fit_ensemble

SEEDS = [3, 4, 9]
METHODS = {"am-adam": [0.01, 0.02, 0.001], "am-sgd": [0.1, 0.05, 0.01], "am-mem": [0.01] * 3, "adam": [0.01, 0.1, 0.02]}


def samples(count: int = 103, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return x, (x[:, :3] + x[:, 3:]).argmax(1)


def made(name: str, rates: list[float] | None = None) -> list[Any]:
    members = []
    for seed, lr in zip(SEEDS, rates or METHODS[name], strict=True):
        torch.manual_seed(seed)
        members.append(methods.create(name, models.mlp(6, (8,), 3).double(), lr=lr))
    return members


def rows(history: Any) -> Any:
    """A history without its seconds, which are there."""
    found = asdict(history)
    for row in found["epochs"]:
        assert row.pop("seconds") > 0
    return found


@pytest.mark.parametrize(
    "name, schedule, seeds",
    [*((name, "cosine", SEEDS) for name in METHODS), ("adam", "step/epoch", SEEDS), ("am-adam", "constant", [5] * 3)],
)
def test_every_member_gets_the_history_that_fit_gives_it_alone(name: str, schedule: str, seeds: list[int]) -> None:
    train, test = samples(), samples(50, 1)
    settings: Any = {"epochs": 3, "batch_size": 20, "eval_batches": [1, 4, 13], "schedule": schedule}
    alone = made(name)
    expected = [fit(method, train, test, seed=seed, **settings) for method, seed in zip(alone, seeds, strict=True)]
    ensemble = Ensemble(made(name))
    found = fit_ensemble(ensemble, train, test, seeds=seeds, **settings)
    assert len({json.dumps(rows(history)) for history in expected}) == 3, "the runs differ"
    for a, b, i in zip(expected, found, range(3), strict=True):
        own = rows(b)
        assert own.pop("diverged") is None
        theirs = rows(a)
        for p, q in zip(own["epochs"], theirs["epochs"], strict=True):
            assert p.pop("train_loss") == pytest.approx(q.pop("train_loss"), abs=1e-8)
        assert own == theirs
        for p, q in zip(ensemble.member(i).parameters(), alone[i].model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-7)
    assert [m.optimizer.param_groups[0]["lr"] for m in ensemble.methods] == METHODS[name], "the first rates again"


def test_progress_has_the_losses_of_all_members() -> None:
    told: list[Progress] = []
    found = fit_ensemble(
        Ensemble(made("am-adam")), samples(), epochs=2, batch_size=20, callbacks=EachBatch(told.append)
    )
    assert [(at.batch, at.batches) for at in told] == [(batch, 12) for batch in range(1, 13)]
    last = [history.epochs[-1]["train_loss"] for history in found]
    assert told[-1].train_losses == pytest.approx(last)
    assert told[-1].train_loss == pytest.approx(sum(last) / 3)


def test_a_member_that_diverges_has_rows_up_to_there_and_the_others_all() -> None:
    train, test = samples(), samples(50, 1)
    settings: Any = {"epochs": 2, "batch_size": 20, "eval_batches": [1, 5]}
    rates = [0.01, 1e200, 0.02]
    found = fit_ensemble(Ensemble(made("am-adam", rates)), train, test, seeds=SEEDS, **settings)
    assert [len(history.epochs) for history in found] == [2, 0, 2]
    assert [len(history.batches) for history in found] == [2, 1, 2]
    assert [history.diverged is None for history in found] == [True, False, True]
    assert re.search(r"diverged: .* in epoch 1, batch 2 of 6 is not finite; lower", found[1].diverged or "")
    alone = fit(made("am-adam")[0], train, test, seed=3, **settings)
    assert rows(found[0])["epochs"][-1]["train_loss"] == pytest.approx(alone.epochs[-1]["train_loss"], abs=1e-8)


def test_a_member_whose_loss_explodes_stops_and_the_others_do_not_notice() -> None:
    settings: Any = {"epochs": 2, "batch_size": 20, "seeds": SEEDS}
    ensemble = Ensemble(made("adam", [0.01, 1e3, 0.02]))
    found = fit_ensemble(ensemble, samples(), samples(50, 1), **settings)
    place = "the loss in epoch 1, batch 2 of 6"
    assert re.search(rf"{place} exploded to .*; lower the learning rate, 1000$", found[1].diverged or "")
    assert ensemble.diverged == {1: 3}, "the step that it did not take"
    with pytest.raises(Diverged, match=place):
        fit(made("adam", [0.01, 1e3, 0.02])[1], samples(), epochs=2, batch_size=20, seed=SEEDS[1])
    calm = fit_ensemble(Ensemble(made("adam", [0.01, 0.01, 0.02])), samples(), samples(50, 1), **settings)
    assert [rows(found[i]) for i in (0, 2)] == [rows(calm[i]) for i in (0, 2)]
    again = fit_ensemble(ensemble, samples(), **settings)
    assert "in an earlier run is not finite or exploded" in (again[1].diverged or "")
    all_of_them = fit_ensemble(Ensemble(made("adam", [1e3] * 3)), samples(), **settings)
    assert ["exploded" in (history.diverged or "") for history in all_of_them] == [True] * 3


def test_a_divergence_that_no_member_explains_is_not_passed_over() -> None:
    ensemble = Ensemble(made("am-adam"))

    def spoil(at: Progress) -> None:
        if at.batch == 6:
            nn.init.constant_(next(ensemble.member(1).parameters()), float("nan"))

    with pytest.raises(Diverged, match=r"1\.weight in epoch 1, batch 6 of 6 is not finite"):
        fit_ensemble(ensemble, samples(), epochs=1, batch_size=20, callbacks=[EachBatch(spoil)])


def test_what_an_ensemble_cannot_be_is_refused() -> None:
    ensemble = Ensemble(made("adam"))
    for more in ({"seeds": [1, 2]}, {"eval_batches": [1]}, {"epochs": 0}, {"schedule": "cosin"}, {"seed": 1}):
        with pytest.raises((ValueError, TypeError)):
            fit_ensemble(ensemble, samples(), **{"epochs": 1, "batch_size": 20, **more})
