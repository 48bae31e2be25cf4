"""A figure is data: its runs, its reduced version, and the file that declares it."""

import json
from pathlib import Path

import pytest

from altmin.reproduce.figure import Figure, Run, choose, load

DECLARED = """
from altmin.reproduce import Figure, Run
FIGURE = Figure("{name}", "a title", [Run("adam", "mlp-1x4")], "epochs", 1)
"""


def test_a_config_is_what_json_gives_back_and_knows_neither_name_nor_number_of_seeds() -> None:
    run = Run("adam", "mlp-1x4", options={"lr": 0.1}, eval_batches=(1, 2), seeds=3, label="mine")
    assert json.loads(json.dumps(run.config())) == run.config()
    assert run.config() == Run("adam", "mlp-1x4", options={"lr": 0.1}, eval_batches=(1, 2)).config()
    assert run.config() != Run("adam", "mlp-1x4", options={"lr": 0.2}, eval_batches=(1, 2)).config()
    assert (run.name, Run("adam", "mlp-1x4").name) == ("mine", "adam")


def test_a_reduced_run_has_one_seed_and_evaluates_where_it_still_comes_to() -> None:
    run = Run("adam", "mlp-1x4", epochs=50, batch_size=1000, eval_batches=(1, 20, 21))
    small = run.reduced()
    assert (small.seeds, small.epochs, small.limit) == (1, 2, 10_000)
    assert small.eval_batches == (1, 20), "two epochs of ten batches"
    assert Run("adam", "mlp-1x4", limit=500).reduced().limit == 500


def test_a_figure_made_smaller_leaves_out_runs_and_bears_on_no_claim() -> None:
    runs = [Run("adam", "mlp-1x4"), Run("sgd", "mlp-1x4")]
    figure = Figure("f", "t", runs, "epochs", 1, claims=["C1"], quick=lambda run: run if run.method == "sgd" else None)  # type: ignore[list-item]
    assert figure.smaller().runs == runs[1:]
    assert not figure.smaller().claims


def test_figures_are_found_in_their_files(tmp_path: Path) -> None:
    (tmp_path / "fig9.py").write_text(DECLARED.format(name="fig9"))
    (tmp_path / "fig10.py").write_text(DECLARED.format(name="fig10"))
    known = load(tmp_path)
    assert sorted(known) == ["fig10", "fig9"]
    assert choose(known, "fig9").title == "a title"
    with pytest.raises(ValueError, match="unknown figure 'fig8'; did you mean 'fig9'"):
        choose(known, "fig8")
    (tmp_path / "fig9.py").write_text(DECLARED.format(name="fig1"))
    with pytest.raises(ValueError, match="declares figure 'fig1'; a file has its figure's name"):
        load(tmp_path)


def test_where_there_are_no_figures_it_is_said_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="they are part of a clone of the repository"):
        load(tmp_path / "nowhere")
