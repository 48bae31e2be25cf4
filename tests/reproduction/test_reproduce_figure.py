"""A figure is data: its runs, its curves, its reduced version, and the file that declares it."""

from pathlib import Path

import pytest

from reproduction.figure import Curve, Figure, choose, load
from reproduction.results import Results
from reproduction.run import Run
from reproduction.search import Search

DECLARED = """
from reproduction import Figure, Run
FIGURES = [Figure("{name}", "a title", [Run("adam", "mlp-1x4")], ["epochs"], 1)]
"""


def test_a_curve_has_the_points_of_all_runs_of_its_panel_and_name_at_rising_places() -> None:
    runs = [Run("adam", f"mlp-{n}x4", at=n, title="depth", seeds=2) for n in (8, 2)]
    runs.append(Run("sgd", "mlp-2x4", at=2, title="depth"))

    def row(run: Run, seed: int, accuracy: float) -> dict[str, object]:
        epochs = [{"epoch": 1, "test_accuracy": accuracy}]
        return {"config": run.config(), "seed": seed, "rows": 10, "batches": [], "epochs": epochs}

    rows = [row(runs[0], 1, 0.4), row(runs[0], 0, 0.3), row(runs[1], 0, 0.2), row(runs[0], 2, 0.9)]
    figure = Figure("f", "t", runs, ["layers"], 1)
    curves = figure.curves(Results(rows), "layers")
    assert curves == [Curve("depth", "adam", [(2, [0.2]), (8, [0.3, 0.4])])], "no third seed, and no curve of sgd"
    assert (figure.panels, figure.names) == (["depth"], ["adam", "sgd"])


def test_seeds_that_take_different_times_are_one_curve_at_their_mean_time() -> None:
    run = Run("adam", "mlp-1x4", seeds=2, epochs=2)

    def row(seed: int, seconds: float, accuracies: list[float]) -> dict[str, object]:
        epochs = [{"epoch": n, "test_accuracy": a, "seconds": seconds} for n, a in enumerate(accuracies, 1)]
        return {"config": run.config(), "seed": seed, "rows": 10, "batches": [], "epochs": epochs}

    figure = Figure("f", "t", [run], ["seconds"], 1)
    (curve,) = figure.curves(Results([row(0, 1.0, [0.1, 0.2]), row(1, 3.0, [0.3, 0.4])]), "seconds")
    assert curve.points == [(2, [0.1, 0.3]), (4, [0.2, 0.4])]
    (curve,) = figure.curves(Results([row(0, 1.0, [0.1, 0.2]), row(1, 3.0, [0.3])]), "seconds")
    assert curve.points == [(1, [0.1, 0.3]), (2, [0.2])], "time is that of seeds that reached the end"


def test_panels_without_results_are_left_out_unless_all_are() -> None:
    runs = [Run("adam", "mlp-1x4"), Run("sgd", "mlp-1x4"), Run("adam", "mlp-2x4")]
    figure = Figure("f", "t", runs, ["epochs"], 1)
    made = {"config": runs[1].config(), "seed": 0}
    assert figure.with_results(Results([made])).runs == runs[:2]
    assert figure.with_results(Results([])).runs == runs


def test_runs_and_searches_are_selected_by_their_words() -> None:
    runs = [Run(method, f"mlp-{n}x4") for method in ("adam", "sgd") for n in (1, 2)]
    figure = Figure("f", "t", runs, ["epochs"], 1, searches=[Search(run, {"lr": [0.1]}) for run in runs])
    assert figure.only(None) is figure
    some = figure.only("adam/mlp-1x4, sgd")
    assert some.runs == [runs[0], *runs[2:]]
    assert [each.run for each in some.searches] == some.runs
    with pytest.raises(ValueError, match="no run of f has the words 'adam/mlp-3x4'; its words are adam, mlp-1x4, mlp"):
        figure.only("adam/mlp-3x4")


def test_a_figure_made_smaller_leaves_out_runs_and_bears_on_no_claim() -> None:
    runs = [Run("adam", "mlp-1x4"), Run("sgd", "mlp-1x4")]
    figure = Figure(
        "f", "t", runs, ["epochs"], 1, claims=["C1"], quick=lambda run: run if run.method == "sgd" else None
    )  # type: ignore[list-item]
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


def test_files_that_declare_no_figure_are_not_executed(tmp_path: Path) -> None:
    (tmp_path / "fig9.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" + DECLARED.format(name="fig9"))
    (tmp_path / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nFIGURES = 1\n")
    with pytest.raises(ValueError, match=r"setup\.py declares no FIGURE, so .* is no folder of figures; nothing was"):
        load(tmp_path)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "setup.py").unlink()
    assert list(load(tmp_path)) == ["fig9"]
    assert (tmp_path / "ran").exists()


def test_where_there_are_no_figures_it_is_said_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there are no figures in .*nowhere; give as --figures DIR a folder of files"):
        load(tmp_path / "nowhere")
