"""Columns of a table as the inputs of a network: what is learnt from the training rows, and what becomes of others."""

import json
import warnings

import numpy as np
import pytest

from altmin.data.columns import Columns


def objects(*values: object) -> np.ndarray:
    return np.array(values, dtype=object)


TABLE = {
    "age": np.array([1.0, 3.0, np.nan, 5.0]),
    "rooms": np.array([2, 2, 2, 2]),
    "city": objects("Rome", None, "Bonn", "Rome"),
    "paid": np.array([True, False, False, True]),
}


def test_numbers_are_standardised_and_a_missing_one_is_the_mean_with_an_indicator() -> None:
    found = Columns.fit({"age": TABLE["age"]}).encode({"age": np.array([3.0, 3.0 + np.sqrt(8 / 3), np.nan])})
    np.testing.assert_allclose(found, [[0, 0], [1, 0], [0, 1]], atol=1e-7)


def test_a_constant_column_is_zero_and_categories_are_one_hot_in_the_order_of_the_alphabet() -> None:
    columns = Columns.fit(TABLE)
    assert columns.features == [
        *("age", "age is missing", "rooms", "city = Bonn", "city = Rome", "city is missing"),
        *("paid = False", "paid = True"),
    ]
    found = columns.encode(TABLE)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, 2], 0)
    np.testing.assert_array_equal(found[:, 3:6], [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(found[:, 6:], [[0, 1], [1, 0], [1, 0], [0, 1]])


def test_rows_after_training_change_nothing_and_an_unknown_category_is_zero_in_all() -> None:
    columns = Columns.fit(TABLE)
    before = columns.to_json()
    later = {**TABLE, "age": np.array([100.0] * 4), "city": objects("Oslo", "Rome", None, "Oslo")}
    np.testing.assert_array_equal(columns.encode(later)[:, 3:6], [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert columns.to_json() == before


def test_a_missing_value_where_training_had_none_is_the_mean() -> None:
    columns = Columns.fit({"a": np.array([1.0, 3.0]), "b": objects("x", "y")})
    np.testing.assert_array_equal(columns.encode({"a": np.array([np.nan]), "b": objects(None)}), [[0, 0, 0]])


def test_all_of_it_passes_through_json_to_the_last_bit() -> None:
    generator = np.random.default_rng(0)
    table = {**TABLE, "age": generator.normal(size=4) * 1e5}
    columns = Columns.fit(table)
    again = Columns.from_json(json.loads(json.dumps(columns.to_json())))
    assert again == columns
    np.testing.assert_array_equal(again.encode(table), columns.encode(table))


def test_objects_from_pandas_are_numbers_texts_and_missing_values() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": pd.array(["a", None, "b"], dtype="string"),
            "kind": pd.Categorical(["u", "v", "u"]),
        }
    )
    columns = Columns.fit({name: frame[name].to_numpy() for name in frame})
    assert columns.categories == ["text", "kind"]
    expected = [[-1, 0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0, 1], [1, 0, 0, 1, 0, 1, 0]]
    np.testing.assert_array_equal(columns.encode({name: frame[name].to_numpy() for name in frame}), expected)


def test_categories_written_as_numbers_are_found_whatever_type_they_come_in() -> None:
    columns = Columns.fit({"grade": objects("1", "2", "3+")})
    for values in (objects("2"), np.array([2]), np.array([2.0])):
        np.testing.assert_array_equal(columns.encode({"grade": values}), [[0, 1, 0]])


def test_a_column_without_values_is_left_out_and_said_to_be() -> None:
    with pytest.warns(UserWarning, match="column 'b' has no value in the training rows and is left out"):
        columns = Columns.fit({"a": np.array([1.0, 2.0]), "b": np.array([np.nan, np.nan])})
    assert columns.names == ["a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns.encode({"a": np.array([1.0])})
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="no column with a value"):
        Columns.fit({"b": objects(None)})


def test_a_column_none_of_whose_categories_is_known_gives_a_warning() -> None:
    columns = Columns.fit({"paid": objects("yes", "no")})
    with pytest.warns(UserWarning, match="column 'paid' has none of the 2 categories it was fitted to, such as 'no'"):
        columns.encode({"paid": objects(*["ja", "nein"] * 6)})


@pytest.mark.parametrize(
    "values, words",
    [
        (objects(*(f"id{n}" for n in range(30))), r"30 different texts such as 'id0' in 30 rows.*--drop c"),
        (objects(*map(str, range(29)), "n.a."), r"--drop c, or correct 'n.a.' if it is to have numbers"),
        (np.array([1.0, np.inf]), "column 'c' has an infinite number in row 2"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "column 'c' has values of type datetime64"),
    ],
)
def test_columns_from_which_nothing_can_be_learnt_are_refused(values: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Columns.fit({"c": values})


def test_a_table_that_lacks_a_column_or_has_a_text_for_a_number_is_refused() -> None:
    columns = Columns.fit({"a": np.array([1.0, 2.0]), "b": np.array([1.0, 2.0])})
    with pytest.raises(ValueError, match="there is no column 'b'; the columns are: a, c"):
        columns.encode({"a": np.zeros(1), "c": np.zeros(1)})
    with pytest.raises(ValueError, match="column 'b' has 'old' in row 2, where numbers are expected"):
        columns.encode({"a": np.zeros(2), "b": objects("3", "old")})
    with pytest.raises(ValueError, match="column 'a' has 1e\\+300 in row 1, far too large"):
        columns.encode({"a": np.array([1e300]), "b": np.zeros(1)})
    with pytest.raises(ValueError, match="no columns of a table"):
        Columns.from_json([{"name": "a"}])
