"""Tables that are not numbers alone: texts are refused, or categories and missing values are encoded if asked for."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from altmin.data.columns import Columns
from altmin.sklearn import AltMinClassifier, AltMinRegressor

pandas = pytest.importorskip("pandas")

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 16, "random_state": 0}
AUTO: dict[str, Any] = {**SMALL, "categorical": "auto"}
BOTH = pytest.mark.parametrize("make", [AltMinClassifier, AltMinRegressor])


def frame(n: int = 80) -> Any:
    """The target is whether the city is Rome, or the age is missing."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Rome", "Bonn", "Oslo"], n).astype(object)
    age = rng.normal(40, 10, n)
    age[::5] = np.nan
    city[::7] = None
    table = pandas.DataFrame({"city": city, "age": age, "size": rng.integers(0, 9, n)})
    return table, ((table["city"] == "Rome") | table["age"].isna()).to_numpy().astype(int)


TABLE, Y = frame()


def test_a_column_of_texts_is_refused_with_a_hint() -> None:
    hint = (
        r"column 'city' has texts such as 'Bonn'.* by sklearn.preprocessing.OneHotEncoder, or give categorical=\"auto\""
    )
    table = TABLE.assign(age=1.0, city=["Bonn", *TABLE["city"].fillna("Rome")[1:]])
    with pytest.raises(ValueError, match=hint):
        AltMinClassifier(**SMALL).fit(table, Y)
    fitted = AltMinClassifier(**SMALL).fit(table.assign(city=1.0), Y)
    with pytest.raises(ValueError, match=hint):
        fitted.predict(table)
    with pytest.raises(ValueError, match=r"column 1 has texts such as 'two'"):
        AltMinClassifier(**SMALL).fit([["1", "one and"], ["2", "two"]][::-1], [0, 1])


def test_a_missing_value_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r'Input X contains NaN, .* give categorical="auto", or put an imputer'):
        AltMinClassifier(**SMALL).fit(TABLE[["age"]], Y)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        AltMinClassifier(**SMALL).fit([[np.inf], [1.0]], [0, 1])


def test_categories_and_missing_values_are_learnt_from() -> None:
    table, y = frame(400)
    found = AltMinClassifier((20,), epochs=60, lr=0.01, categorical="auto", random_state=0).fit(table[:300], y[:300])
    assert found.score(table[300:], y[300:]) > 0.95
    assert found.feature_names_in_.tolist() == ["city", "age", "size"]
    assert found.n_features_in_ == 3


@BOTH
def test_the_network_is_that_of_the_encoded_columns(make: Any) -> None:
    columns = {name: TABLE[name].to_numpy() for name in TABLE.columns}
    encoded = Columns.fit(columns).encode(columns)
    found, same = make(**AUTO).fit(TABLE, Y), make(**SMALL, standardise=False).fit(encoded, Y)
    assert torch.equal(found.inputs_of(TABLE), torch.from_numpy(encoded))
    assert np.array_equal(found.predict(TABLE), same.predict(encoded))


@BOTH
def test_an_array_of_numbers_with_missing_values_is_a_table_too(make: Any) -> None:
    X = TABLE[["age", "size"]].to_numpy()
    found = make(**AUTO).fit(X, Y)
    assert found.inputs_of(X).shape == (80, 3)  # one column tells where the age is missing
    assert np.array_equal(found.predict(X), make(**AUTO).fit(TABLE[["age", "size"]], Y).predict(TABLE[["age", "size"]]))


def test_columns_whose_names_are_numbers_are_told_by_their_place() -> None:
    X = TABLE[["age", "size"]].to_numpy()
    table = pandas.DataFrame(X, columns=[7, 3])
    found = AltMinClassifier(**AUTO).fit(table, Y)
    assert np.array_equal(found.predict_proba(table), AltMinClassifier(**AUTO).fit(X, Y).predict_proba(X))
    assert np.allclose(found.export()(torch.from_numpy(X)), found.predict_proba(table))


@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_a_frame_and_an_array_of_the_same_table_are_predicted_alike() -> None:
    table = TABLE[["age", "size"]]
    by_name, by_place = (AltMinClassifier(**AUTO).fit(X, Y) for X in (table, table.to_numpy()))
    assert np.array_equal(by_name.predict_proba(table.to_numpy()), by_place.predict_proba(table))


def test_types_of_pandas_are_read_as_what_they_are() -> None:
    number = pandas.Series([1, 2, None, 4] * 20, dtype="Int64")
    code = pandas.Series([1, 2, None, 1] * 20).astype("category")
    text = pandas.Series(["a", "b", None, "a"] * 20, dtype="string")
    found = AltMinClassifier(**AUTO).fit(pandas.DataFrame({"number": number, "code": code, "text": text}), Y)
    assert found._columns.features == [
        *("number", "number is missing"),
        *("code = 1.0", "code = 2.0", "code is missing"),
        *("text = a", "text = b", "text is missing"),
    ]


@pytest.mark.filterwarnings("ignore:column 'city'")
def test_a_category_that_is_new_is_predicted_as_one_that_is_missing_without_its_mark() -> None:
    found = AltMinClassifier(**AUTO).fit(TABLE, Y)
    row = TABLE[:1].assign(city="Lima")
    assert found.inputs_of(row)[0, :4].tolist() == [0, 0, 0, 0]


@BOTH
def test_the_columns_of_a_stream_are_those_of_its_first_rows(make: Any) -> None:
    more = {"classes": [0, 1]} if make is AltMinClassifier else {}
    found = make(**AUTO).partial_fit(TABLE[:40], Y[:40], **more)
    before = found.inputs_of(TABLE)
    other = pickle.loads(pickle.dumps(found)).partial_fit(TABLE[40:], Y[40:])
    found.partial_fit(TABLE[40:], Y[40:])
    assert torch.equal(found.inputs_of(TABLE), before)
    assert np.array_equal(found.predict(TABLE), other.predict(TABLE))


def test_rows_of_weight_zero_have_no_part_in_the_columns() -> None:
    w = (TABLE["city"] != "Oslo").to_numpy().astype(float)
    found = AltMinClassifier(**AUTO).fit(TABLE, Y, sample_weight=w)
    same = AltMinClassifier(**AUTO).fit(TABLE[w > 0], Y[w > 0], sample_weight=w[w > 0])
    assert "city = Oslo" not in found._columns.features
    assert np.array_equal(found.predict_proba(TABLE), same.predict_proba(TABLE))


def test_a_search_over_a_table_with_categories() -> None:
    assert cross_val_score(AltMinClassifier(**{**AUTO, "epochs": 40, "lr": 0.01}), TABLE, Y, cv=2).mean() > 0.8
    assert clone(AltMinClassifier(**AUTO)).categorical == "auto"


def test_what_does_not_fit_is_refused() -> None:
    for wrong, words in (
        ({"categorical": "all"}, "categorical of AltMinClassifier is \"auto\" or None, given 'all'"),
        ({"categorical": ["city"]}, "categorical of AltMinClassifier is \"auto\" or None, given \\['city'\\]"),
        ({"standardise": False}, 'categorical="auto" standardises the columns of numbers; leave standardise=True'),
    ):
        with pytest.raises(ValueError, match=words):
            AltMinClassifier(**{**AUTO, **wrong}).fit(TABLE, Y)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        AltMinClassifier(**AUTO).fit(sparse.csr_array(np.eye(4)), [0, 1, 0, 1])
    twice = pandas.DataFrame(np.eye(4)[:, :2], columns=["a", "a"])
    with pytest.raises(ValueError, match=r"unique column names|names of their own"):
        AltMinClassifier(**AUTO).fit(twice, [0, 1, 0, 1])
    found = AltMinClassifier(**AUTO).fit(TABLE, Y)
    with pytest.raises(ValueError, match="column 'age' has 'old' in row 1, where numbers are expected"):
        found.predict(TABLE[:1].assign(age="old"))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(TABLE[["age", "city", "size"]])
