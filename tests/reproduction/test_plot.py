"""What all pictures share."""

import pytest
from matplotlib.figure import Figure

from altmin.cli import plot


def test_ticks_are_where_they_were_asked_for_and_written_out() -> None:
    axes = Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(0.01, 1e6)
    plot.mark(axes.xaxis, [0.05, 1, 20, 5000])
    assert list(axes.get_xticks()) == [0.05, 1, 20, 5000]
    assert list(axes.get_xticks(minor=True)) == []
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.05", "1", "20", "5,000"]


def test_a_tidy_picture_has_no_box() -> None:
    axes = Figure().subplots()
    plot.tidy(axes, "y")
    assert [side for side, spine in axes.spines.items() if spine.get_visible()] == ["left", "bottom"]
    assert any(line.get_visible() for line in axes.get_ygridlines())
    assert not any(line.get_visible() for line in axes.get_xgridlines())


@pytest.mark.parametrize("name, start", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_figure_becomes_a_file_of_its_format(name: str, start: bytes) -> None:
    assert plot.content(Figure(), name).startswith(start)


def test_many_curves_have_styles_of_their_own() -> None:
    styles = [plot.style(i) for i in range(20)]
    assert len({(each["color"], each["linestyle"]) for each in styles}) == 20
