"""A bar that counts batches on a terminal and is quiet in a pipe; curves for TensorBoard that hold every row."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from loop_cases import learner, samples
from rich.console import Console
from test_training_loop import Recorder, numbered

from altmin import Ensemble
from altmin.training import EachBatch, ProgressBar, TensorBoard, fit, fit_ensemble


def bar(terminal: bool) -> tuple[ProgressBar, io.StringIO]:
    out = io.StringIO()
    return ProgressBar("net", Console(file=out, force_terminal=terminal, width=100)), out


def test_a_bar_counts_batches_on_a_terminal_and_is_quiet_in_a_pipe() -> None:
    for terminal in (True, False):
        shown, out = bar(terminal)
        fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[shown])
        assert ("4/4 loss 3.5000" in out.getvalue()) is terminal
        assert shown.bar is None
    assert out.getvalue() == ""


def test_a_bar_is_gone_whatever_ends_the_run_and_counts_without_knowing_the_end() -> None:
    def fail(progress: Any) -> None:
        raise ZeroDivisionError

    shown, out = bar(True)
    with pytest.raises(ZeroDivisionError):
        fit(
            Recorder(),
            iter(list(zip(*(t.split(4) for t in numbered(8)), strict=True))),
            epochs=1,
            callbacks=[shown, fail],
        )
    assert shown.bar is None
    assert out.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in out.getvalue(), "the cursor is back"


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_gets_every_number_of_every_row(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path / "board")
    history = fit(learner(), samples(), samples(30, 1), epochs=2, batch_size=20, eval_batches=[2, 5], callbacks=[board])
    found = scalars(tmp_path / "board")
    assert set(found) == {"train_loss", "test_accuracy", "seconds", "batch/test_accuracy"}
    for name in ("train_loss", "test_accuracy"):
        assert found[name] == [(row["epoch"], pytest.approx(row[name], rel=1e-6)) for row in history.epochs]
    rows = [(row["batch"], pytest.approx(row["test_accuracy"], rel=1e-6)) for row in history.batches]
    assert found["batch/test_accuracy"] == rows
    assert board.writer is None


def test_a_run_that_goes_on_shows_every_epoch_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    kept: dict[str, Any] = {"epochs": 3, "batch_size": 20, "checkpoint": tmp_path / "run"}

    def fail(progress: Any) -> None:
        if progress.batch == 8:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(learner(), samples(), **kept, callbacks=[TensorBoard(tmp_path / "board"), EachBatch(fail)])
    fit(learner(), samples(), **kept, callbacks=[TensorBoard(tmp_path / "board")], resume=True)
    assert [step for step, _ in scalars(tmp_path / "board")["train_loss"]] == [1, 2, 3]


def test_members_of_an_ensemble_have_curves_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    ensemble = Ensemble([learner(seed=s) for s in (0, 1)])
    histories = fit_ensemble(ensemble, samples(), epochs=2, batch_size=20, callbacks=[TensorBoard(tmp_path / "board")])
    found = scalars(tmp_path / "board")
    for i, history in enumerate(histories):
        assert [v for _, v in found[f"member {i}/train_loss"]] == pytest.approx(
            [row["train_loss"] for row in history.epochs], rel=1e-6
        )


def test_without_the_package_it_says_so_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    recorder = Recorder()
    with pytest.raises(ImportError, match=r"TensorBoard needs tensorboard, .*: pip install tensorboard"):
        fit(recorder, numbered(4), epochs=1, batch_size=4, callbacks=[TensorBoard(tmp_path)])
    assert recorder.seen == []
