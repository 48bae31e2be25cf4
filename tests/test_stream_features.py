"""Samples as rows: every feature in its column, whatever the order in which it is given."""

import numpy as np
import pytest

pytest.importorskip("river")
from altmin.stream.features import Features, table_of


def known(*names: object, absent: str = "mean") -> Features:
    features = Features(absent)
    features.add(names)
    return features


def test_values_go_to_the_columns_of_their_names_and_unknown_ones_nowhere() -> None:
    row = known("b", "a", 3).row({"a": 1, 3: True, "z": 9.0})
    np.testing.assert_array_equal(row, [np.nan, 1.0, 1.0])


def test_none_and_nan_are_absent_and_absent_counts_as_zero_where_it_is_said_so() -> None:
    x = {"a": None, "b": float("nan"), "c": 2}
    np.testing.assert_array_equal(known("a", "b", "c", "d").row(x), [np.nan, np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(known("a", "b", "c", "d", absent="zero").row(x), [0.0, 0.0, 2.0, 0.0])


def test_new_features_have_an_order_that_does_not_depend_on_the_samples() -> None:
    features = known("b")
    assert features.new(["c", "b", 1, "a"]) == features.new({"a", "c", 1}) == [1, "a", "c"]
    np.testing.assert_array_equal(features.row({"c": 3.0, "b": 2.0, "a": 1.0}, ["a", "c"]), [2.0, 1.0, 3.0])


def test_rows_of_a_table_are_the_rows_of_its_samples() -> None:
    features, columns = known("a", "b"), ["c", "b", "z"]
    table = np.array([[1.0, np.nan, 5.0], [2.0, 3.0, 6.0]])
    rows = features.rows(columns, table, ["c"])
    for row, values in zip(rows, table, strict=True):
        np.testing.assert_array_equal(row, features.row(dict(zip(columns, values, strict=True)), ["c"]))


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="feature 'colour' is 'red', a number is expected"):
        known("colour").row({"colour": "red"})
    with pytest.raises(ValueError, match=r"feature 'v' is \[1\.0\], a number is expected"):
        known("v").row({"v": [1.0]})
    with pytest.raises(ValueError, match="feature 'b' is infinite"):
        known("a", "b").row({"a": 0.0, "b": -np.inf})
    with pytest.raises(TypeError, match="a sample is a dict of features"):
        known("a").row([1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="absent is 'mean' or 'zero', given 'median'"):
        Features("median")


def test_a_table_without_numbers_is_refused_with_the_name_of_its_column() -> None:
    pd = pytest.importorskip("pandas")
    columns, values = table_of(pd.DataFrame({"a": [1, 2], "b": [True, False]}))
    assert columns == ["a", "b"]
    assert values.tolist() == [[1.0, 1.0], [2.0, 0.0]]
    with pytest.raises(ValueError, match="column 'b' holds no numbers"):
        table_of(pd.DataFrame({"a": [1.0], "b": ["x"]}))
    with pytest.raises(TypeError, match="a pandas DataFrame"):
        table_of([[1.0]])
