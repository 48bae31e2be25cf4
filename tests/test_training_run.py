"""A run that was stopped, by whatever, goes on to the very numbers of one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from method_cases import ANY_NET
from test_training_loop import Recorder, numbered
from torch import Tensor, nn

from altmin import methods
from altmin.common.errors import Diverged
from altmin.training import EachBatch, History, Progress, checkpoint, fit

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 20,
    "seed": 2,
    "eval_batches": [2, 7],
    "schedule": "cosine",
}


def problem(n: int = 90, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def learner(
    name: str = "adam", seed: int = 0, width: int = 8, dtype: torch.dtype = torch.float32, **options: Any
) -> methods.Method:
    """Dropout needs the global random state, batch norm has buffers."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 3))
    return methods.create(name, model.to(dtype), **options)


def outcome(method: methods.Method, history: History) -> tuple[dict[str, bytes], dict[str, Any]]:
    rows = asdict(history)
    for row in rows["epochs"]:
        assert row.pop("seconds") > 0
    return {name: value.numpy().tobytes() for name, value in method.model.state_dict().items()}, rows


@pytest.fixture
def uninterrupted() -> Any:
    method = learner()
    return outcome(method, fit(method, problem(), problem(40, 1), **SETTINGS))


def stop_at(batch: int, error: BaseException) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.batch == batch:
            raise error

    return report


@pytest.mark.parametrize("name", ANY_NET)
@pytest.mark.parametrize("every", [None, 2])
def test_every_method_resumed_is_as_if_uninterrupted(name: str, every: int | None, tmp_path: Path) -> None:
    run = {"train": problem(), "test": problem(40, 1), **SETTINGS}
    whole = learner(name)
    expected = outcome(whole, fit(whole, **run))
    kept = {**run, "checkpoint": tmp_path / "run", "checkpoint_every": every}
    with pytest.raises(ZeroDivisionError):
        fit(learner(name), **kept, callbacks=[EachBatch(stop_at(3, ZeroDivisionError()))])
    with pytest.raises(ZeroDivisionError):
        fit(learner(name, seed=7), **kept, resume=True, callbacks=[EachBatch(stop_at(8, ZeroDivisionError()))])
    second = learner(name, seed=8)
    assert outcome(second, fit(second, **kept, resume=True)) == expected


@pytest.mark.parametrize("batch", [1, 4, 5, 6, 9, 14, 15])
def test_stopped_after_any_batch_it_ends_the_same(batch: int, tmp_path: Path, uninterrupted: Any) -> None:
    kept = {**SETTINGS, "checkpoint": tmp_path / "run", "checkpoint_every": min(batch, 1 + batch % 3)}
    with pytest.raises(ZeroDivisionError):
        fit(learner(), problem(), problem(40, 1), **kept, callbacks=[EachBatch(stop_at(batch, ZeroDivisionError()))])
    seen: list[int] = []
    method = learner(seed=1)
    torch.manual_seed(batch)
    again = fit(
        method, problem(), problem(40, 1), **kept, resume=True, callbacks=[EachBatch(lambda p: seen.append(p.batch))]
    )
    assert outcome(method, again) == uninterrupted
    assert len(seen) < 15, "it began anew"


def test_a_finished_run_resumes_to_its_result_and_may_be_prolonged_at_a_constant_rate(tmp_path: Path) -> None:
    run = {**SETTINGS, "schedule": "constant"}
    long = learner()
    expected = outcome(long, fit(long, problem(), problem(40, 1), **{**run, "epochs": 5}))
    kept = {**run, "checkpoint": tmp_path / "run"}
    third, second, first = learner(seed=2), learner(seed=1), learner()
    done = outcome(first, fit(first, problem(), problem(40, 1), **kept))
    report = stop_at(15, AssertionError("it trained again"))
    assert (
        outcome(second, fit(second, problem(), problem(40, 1), **kept, resume=True, callbacks=[EachBatch(report)]))
        == done
    )
    longer = fit(third, problem(), problem(40, 1), **{**kept, "epochs": 5}, resume=True)
    assert outcome(third, longer) == expected


def test_the_same_objects_can_go_on_after_an_interrupt(tmp_path: Path, uninterrupted: Any) -> None:
    kept = {**SETTINGS, "checkpoint": tmp_path / "run"}
    method = learner()
    message = "stopped in epoch 2, batch 3 of 5; the last good checkpoint is .*run .*--resume"
    with pytest.raises(KeyboardInterrupt, match=message):
        fit(method, problem(), problem(40, 1), **kept, callbacks=[EachBatch(stop_at(7, KeyboardInterrupt()))])
    assert outcome(method, fit(method, problem(), problem(40, 1), **kept, resume=True)) == uninterrupted


SCRIPT = """
    import sys, torch
    torch.set_num_threads({threads})
    sys.path.insert(0, {tests!r})
    from test_training_run import SETTINGS, learner, outcome, problem
    from altmin.training import EachBatch, fit
    import os
    method = learner()
    fit(method, problem(), problem(40, 1), **SETTINGS, checkpoint={path!r}, checkpoint_every=1,
        resume=os.path.exists({path!r}), callbacks=[EachBatch(lambda p: print(p.batch, flush=True))])
"""


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_the_same(tmp_path: Path, uninterrupted: Any) -> None:
    """SIGKILL gives no time to tidy up; it falls anywhere, in the writing of a checkpoint too."""
    path, choice = tmp_path / "run", random.Random(0)
    here = str(Path(__file__).parent)
    code = textwrap.dedent(SCRIPT.format(tests=here, path=str(path), threads=torch.get_num_threads()))
    kills = 0
    for wait in [2, 5, None]:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for i, _ in enumerate(child.stdout, 1):
            if i == wait:
                time.sleep(choice.random() * 0.004)  # so as to fall anywhere in the child's next batches
                child.kill()
        kills += child.wait() == -signal.SIGKILL
        assert checkpoint.load(path)["at"]["epoch"] <= 3
    assert kills == 2
    method = learner(seed=9)
    assert outcome(method, fit(method, problem(), problem(40, 1), **SETTINGS, checkpoint=path, resume=True)) == (
        uninterrupted
    )


def test_divergence_keeps_the_last_good_checkpoint_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    method = learner("sgd", lr=0.1)

    def spoil(progress: Progress) -> None:
        if progress.batch == 7:
            with torch.no_grad():
                next(method.model.parameters()).fill_(float("nan"))

    with pytest.raises(Diverged, match=r"epoch 2, batch 3 of 5 is not finite; .*; the last good checkpoint is .*run$"):
        fit(
            method,
            problem(),
            epochs=3,
            batch_size=20,
            checkpoint=path,
            checkpoint_every=1,
            callbacks=[EachBatch(spoil)],
        )
    state = checkpoint.load(path)
    assert state["at"]["epoch"] * 5 + state["at"]["batch"] == 7
    assert all(value.isfinite().all() for value in state["model"].values())


def test_parameters_spoiled_by_a_finite_loss_never_reach_a_checkpoint(tmp_path: Path) -> None:
    class Spoiling:
        """Its third step leaves NaN behind, which only the fourth's loss would show."""

        def __init__(self) -> None:
            self.model = nn.Linear(6, 3)
            self.inner = methods.create("sgd", self.model)
            self.optimizer, self.steps = self.inner.optimizer, 0

        def step(self, x: Tensor, y: Tensor) -> Any:
            metrics = self.inner.step(x, y)
            self.steps += 1
            if self.steps == 3:
                nn.init.constant_(self.model.bias, float("nan"))
            return metrics

        def end_epoch(self) -> None: ...
        def state_dict(self) -> dict[str, Any]:
            return self.inner.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.inner.load_state_dict(state)

    with pytest.raises(Diverged, match="bias in epoch 1, batch 3 of 5"):
        fit(Spoiling(), problem(), epochs=1, batch_size=20, checkpoint=tmp_path / "run", checkpoint_every=1)
    assert checkpoint.load(tmp_path / "run")["at"]["batch"] == 2


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seed": 3}, "its seed is 2, here it is 3"),
        ({"batch_size": 10}, "its batch_size is 20, here it is 10"),
        ({"epochs": 4}, "its schedule is cosine over 3 epochs, here it is cosine over 4 epochs"),
        ({"eval_batches": [2]}, r"its eval_batches is \[2, 7\], here it is \[2\]"),
        ({"config": {"data": "cifar10"}}, "its data is mnist, here it is cifar10"),
        ({"train": problem(89)}, "its number of training samples is 90, here it is 89"),
        (
            {"train": (problem()[0] * 1.001, problem()[1])},
            "its training data is 90 samples, float32 6 and int64, digest",
        ),
        (
            {"train": (problem()[0], problem()[1].int())},
            "its training data is .* int64, .* here it is .* int32, digest",
        ),
        ({"test": problem(41, 1)}, "its test data is 40 samples, .*, here it is 41 samples"),
        ({"test": None, "eval_batches": []}, r"its eval_batches is \[2, 7\]"),
        ({"method": learner(loss=nn.MSELoss())}, r"its loss is CrossEntropyLoss\(.*here it is MSELoss\("),
        ({"method": learner(dtype=torch.float64)}, "its model is 0.weight 8x6 float32, .* 0.weight 8x6 float64"),
        ({"method": learner(width=9)}, "its model is 0.weight 8x6"),
        ({"method": learner("sgd")}, "its optimizer is Adam"),
        ({"method": learner(lr=0.5)}, r"its optimizer is Adam\(lr=0.001"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_changes_nothing(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    run = {"train": problem(), "test": problem(40, 1), **SETTINGS, "checkpoint": tmp_path / "run"}
    fit(learner(), **run, config={"data": "mnist"})
    file = (tmp_path / "run").read_bytes()
    run = {"method": learner(seed=1), **run, "config": {"data": "mnist"}, **change}
    method = run["method"]
    before = {name: value.clone() for name, value in method.model.state_dict().items()}
    random_state = torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        fit(**run, resume=True)
    assert all(torch.equal(before[name], value) for name, value in method.model.state_dict().items())
    assert method.state_dict()["optimizer"]["state"] == {}
    assert torch.equal(torch.get_rng_state(), random_state)
    assert (tmp_path / "run").read_bytes() == file


def test_what_a_killed_run_left_of_a_checkpoint_is_deleted(tmp_path: Path) -> None:
    run: dict[str, Any] = {"train": problem(), **SETTINGS, "eval_batches": [], "checkpoint": tmp_path / "run"}
    for resume in (False, True):
        left, others = (f".{name}.{'a' * 32}.tmp" for name in ("run", "other"))
        (tmp_path / left).write_text("half")
        (tmp_path / others).write_text("another's")
        fit(learner(), **run, resume=resume)
        assert sorted(os.listdir(tmp_path)) == [others, "run"]


def test_a_method_that_rejects_the_state_halfway_gets_its_own_back(tmp_path: Path) -> None:
    class Picky(Recorder):
        count = 9

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"]
            if self.count > 5:
                raise ValueError(f"{self.count} is too much")

    run: dict[str, Any] = {"epochs": 1, "batch_size": 4, "checkpoint": tmp_path / "run"}
    fit(Picky(), numbered(8), **run)
    method = Picky()
    method.count = 1
    with pytest.raises(ValueError, match="does not fit this run: 9 is too much"):
        fit(method, numbered(8), **run, resume=True)
    assert method.count == 1


def test_an_earlier_runs_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("precious")
    with pytest.raises(ValueError, match="run exists already: resume from it, or choose another"):
        fit(learner(), problem(), **{**SETTINGS, "eval_batches": []}, checkpoint=tmp_path / "run")
    assert (tmp_path / "run").read_text() == "precious"


def test_history_is_json(uninterrupted: Any) -> None:
    assert json.loads(json.dumps(uninterrupted[1])) == uninterrupted[1]
    assert os.sep not in json.dumps(uninterrupted[1])
