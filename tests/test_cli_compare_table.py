"""The table of `altmin compare` shows means and deviations of what the result holds."""

from compared import result

from altmin.cli.compare import table


def test_the_table_gives_mean_and_deviation_over_the_seeds_and_the_time_against_adam() -> None:
    drawn = table(result())
    cells = {str(column.header): list(column.cells) for column in drawn.columns}
    assert cells["method"] == ["am-adam", "adam"]
    assert cells["50 batches"] == ["0.9100 ± 0.0141", "0.8800 ± 0.0000"]
    assert cells["epoch 2"] == ["0.9500 ± 0.0000", "0.9700 ± 0.0141"]
    assert cells["best"] == ["0.9650 ± 0.0071", "0.9700 ± 0.0141"]
    assert cells["train loss"] == ["0.5000 ± 0.0000"] * 2
    assert cells["seconds"] == ["9.0 ± 4.2", "5.0 ± 1.4"]
    assert cells["time / adam"] == ["1.75 ± 0.35", "1.00 ± 0.00"]
