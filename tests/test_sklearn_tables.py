"""Tables that are not numbers alone: categories and missing values are encoded if asked for; tables in files."""

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.model_selection import cross_val_score
from sklearn_cases import KINDS, SMALL, first

from altmin.sklearn import AltMinClassifier
from altmin.sklearn.tables import Columns, codes, read_table

pandas = pytest.importorskip("pandas")

AUTO: dict[str, Any] = {**SMALL, "categorical": "auto"}
BOTH = pytest.mark.parametrize("make", KINDS)


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


def encoded(table: Any) -> np.ndarray:
    """The columns by their definition: numbers, which of them are missing, and each category, missing ones last."""
    age, city = table["age"].to_numpy(), table["city"]
    numbers = [
        (age - np.nanmean(age)) / np.nanstd(age),
        (table["size"] - table["size"].mean()) / table["size"].std(ddof=0),
    ]
    marks = [city == "Bonn", city == "Oslo", city == "Rome", city.isna()]
    return np.stack([np.nan_to_num(numbers[0]), numbers[1], np.isnan(age), *marks], 1).astype(np.float32)


# What columns become


@pytest.mark.parametrize("names", [["city", "age", "size"], ["age", "size"], ["city"]], ids=str)
def test_numbers_are_standardised_categories_are_columns_and_missing_values_are_marked(names: list[str]) -> None:
    found, numbers, texts = Columns(TABLE[names]), encoded(TABLE)[:, :3], encoded(TABLE)[:, 3:]
    expected = np.concatenate([numbers] * ("age" in names) + [texts] * ("city" in names), 1)
    np.testing.assert_allclose(found.encode(TABLE), expected, rtol=1e-6, atol=1e-7)
    known = {"city": ["Bonn", "Oslo", "Rome", None], "age": None, "size": None}
    assert found.categories == {name: known[name] for name in names}


def test_what_training_did_not_see_is_zero_and_warned_of_if_it_is_a_category() -> None:
    found, row = Columns(TABLE), TABLE[:1].assign(city="Lima", size=np.nan)  # no size was missing before
    with pytest.warns(UserWarning, match="column 'city' has 'Lima'"):
        assert found.encode(row)[0, [1, 3, 4, 5, 6]].tolist() == [0, 0, 0, 0, 0]
    with pytest.warns(UserWarning, match="'Lima'"):
        assert codes(row, found.categories)[0, 0] == -1


def test_types_of_pandas_are_read_as_what_they_are() -> None:
    table = pandas.DataFrame(
        {
            "number": pandas.Series([1, 2, None, 4], dtype="Int64"),
            "object": pandas.Series([1, 2.5, None, 4], dtype=object),
            "code": pandas.Series([1, 2, None, 1]).astype("category"),
            "text": pandas.Series(["a", "b", None, "a"], dtype="string"),
            "truth": [True, False, True, True],
            "mixed": ["a", 1, 1.0, None],
            "empty": [None] * 4,
        }
    )
    found = Columns(table)
    texts = {"code": ["1", "2", None], "text": ["a", "b", None], "truth": ["False", "True"], "mixed": ["1", "a", None]}
    assert {name: known for name, known in found.categories.items() if known} == texts
    assert found.encode(table).shape == (4, 2 + 2 + 3 + 3 + 2 + 3)
    whole = pandas.DataFrame({**table, "code": [1, 2, 1, 1]})  # a whole number has one name, as an int or a float
    assert np.array_equal(found.encode(whole)[0], found.encode(table)[0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [bool, "category", "boolean"])
def test_truth_values_and_zero_and_one_mean_the_same(kind: Any) -> None:
    truth = np.array([True, False, True, True])
    table = pandas.DataFrame({"a": truth, "b": ["x", "y", "x", "x"]}).astype({"a": kind, "b": "category"})
    for one, other in ((table, table.assign(a=truth * 1.0)), (table.assign(a=truth * 1.0), table)):
        found = Columns(one)
        assert np.array_equal(found.encode(other), found.encode(one))
    digits = Columns(table.assign(a=["1", "0", "1", "1"]))
    assert np.array_equal(digits.encode(table), digits.encode(table.assign(a=truth.astype(int))))
    known = {"a": ["1", "2", None]}  # no truth values
    with pytest.warns(UserWarning, match="'True'"):
        assert codes(table[:1], known)[0, 0] == -1


@pytest.mark.parametrize("kind", [bool, "boolean", "Int64"])
def test_a_frame_may_have_categories_and_truth_values(kind: Any) -> None:
    texts = TABLE.assign(truth=pandas.Series(Y == 1).astype(kind))
    table = texts.assign(city=texts["city"].astype("category"))
    found, same = AltMinClassifier(**AUTO).fit(table, Y), AltMinClassifier(**AUTO).fit(texts.astype(object), Y)
    assert np.array_equal(found.predict_proba(table), same.predict_proba(table))
    assert np.array_equal(found.predict_proba(table), found.predict_proba(table.assign(truth=Y)))


IDS, DATES = [f"id {n}" for n in range(80)], pandas.date_range("2020", periods=80)
REFUSED = {
    "ids": (lambda: Columns(TABLE.assign(city=IDS)), "column 'city' has 80 different texts"),
    "mistyped numbers": (lambda: Columns(TABLE.assign(age=["12,5", *map(str, range(79))])), "column 'age'"),
    "dates": (lambda: Columns(TABLE.assign(city=DATES)), "column 'city'"),
    "a text for a number": (lambda: Columns(TABLE).encode(TABLE.assign(age="old")), "column 'age' is to have numbers"),
    "infinite": (lambda: Columns(TABLE).encode(TABLE.assign(age=np.inf)), "column 'age' has an infinite number"),
    "no column": (lambda: codes(TABLE[["city"]], {"age": None}), "no column 'age'"),
    "not asked for: NaN": (lambda: AltMinClassifier(**SMALL).fit(TABLE[["age"]], Y), "NaN"),
    "not asked for: texts": (lambda: AltMinClassifier(**SMALL).fit(TABLE, Y), "could not convert string"),
    "sparse": (lambda: AltMinClassifier(**AUTO).fit(sparse.csr_array(np.eye(4)), [0, 1, 0, 1]), "[Ss]parse"),
    "one name twice": (lambda: AltMinClassifier(**AUTO).fit(TABLE.set_axis(["a", "b", "a"], axis=1), Y), ""),
    "another order": (lambda: AltMinClassifier(**AUTO).fit(TABLE, Y).predict(TABLE[["age", "city", "size"]]), "names"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tables_that_do_not_fit_are_refused(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=words):
        call()


# The estimators


def test_categories_and_missing_values_are_learnt_from() -> None:
    table, y = frame(400)
    found = AltMinClassifier((20,), epochs=60, lr=0.01, categorical="auto", random_state=0).fit(table[:300], y[:300])
    assert found.score(table[300:], y[300:]) > 0.95
    assert found.feature_names_in_.tolist() == ["city", "age", "size"]
    assert cross_val_score(AltMinClassifier(**{**AUTO, "epochs": 40, "lr": 0.01}), TABLE, Y, cv=2).mean() > 0.8


@BOTH
def test_the_network_is_that_of_the_encoded_columns(make: Any) -> None:
    inputs = Columns(TABLE).encode(TABLE)
    found, same = make(**AUTO).fit(TABLE, Y), make(**SMALL, standardise=False).fit(inputs, Y)
    assert torch.equal(found.inputs_of(TABLE), torch.from_numpy(inputs))
    assert np.array_equal(found.predict(TABLE), same.predict(inputs))


@BOTH
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_an_array_and_a_frame_of_the_same_table_are_predicted_alike(make: Any) -> None:
    X = TABLE[["age", "size"]].to_numpy()
    for table in (TABLE[["age", "size"]], pandas.DataFrame(X, columns=[7, 3])):
        by_name, by_place = make(**AUTO).fit(table, Y), make(**AUTO).fit(X, Y)
        assert by_place.inputs_of(X).shape == (80, 3)  # one column tells where the age is missing
        assert np.array_equal(by_name.predict(X), by_place.predict(table))
    mixed = make(**AUTO).fit(TABLE.to_numpy(dtype=object), Y)
    assert np.array_equal(mixed.predict(TABLE.to_numpy(dtype=object)), make(**AUTO).fit(TABLE, Y).predict(TABLE))


@BOTH
def test_the_columns_of_a_stream_are_those_of_its_first_rows(make: Any) -> None:
    found = make(**AUTO).partial_fit(TABLE[:40], Y[:40], **first(make, 2))
    before = found.inputs_of(TABLE)
    other = pickle.loads(pickle.dumps(found)).partial_fit(TABLE[40:], Y[40:])
    found.partial_fit(TABLE[40:], Y[40:])
    assert torch.equal(found.inputs_of(TABLE), before)
    assert np.array_equal(found.predict(TABLE), other.predict(TABLE))


def test_rows_of_weight_zero_have_no_part_in_the_columns() -> None:
    w = (TABLE["city"] != "Oslo").to_numpy().astype(float)
    found = AltMinClassifier(**AUTO).fit(TABLE, Y, sample_weight=w)
    same = AltMinClassifier(**AUTO).fit(TABLE[w > 0], Y[w > 0], sample_weight=w[w > 0])
    assert found.categories_["city"] == ["Bonn", "Rome", None]
    assert np.array_equal(found.predict_proba(TABLE[w > 0]), same.predict_proba(TABLE[w > 0]))


# Files

TEXT = 'size;city; sold\n5 ;"old; town";TRUE\nNA;;false\n1e2;007;?\n'


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", [".csv", ".TSV", ".csv.gz"])
def test_a_text_file_has_numbers_texts_and_missing_values(delimiter: str, end: str, tmp_path: Path) -> None:
    content = ("\ufeff" + TEXT.replace(";", delimiter)).encode()
    (tmp_path / f"t{end}").write_bytes(gzip.compress(content) if end.endswith("gz") else content)
    table = read_table(tmp_path / f"t{end}")
    assert list(table) == ["size", "city", "sold"]
    np.testing.assert_array_equal(table["size"], [5, np.nan, 100])
    assert table["city"].fillna("-").tolist() == [f"old{delimiter} town", "-", "007"]
    assert table["sold"].fillna("-").tolist() == ["TRUE", "false", "-"]  # texts, whatever a column's other cells are


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_text(",a\n0,5\n1,6\n")
    with pytest.warns(UserWarning, match="index"):
        assert read_table(tmp_path / "index.csv").to_dict("list") == {"a": [5, 6]}
    pytest.importorskip("pyarrow")
    TABLE.to_parquet(tmp_path / "t.parquet")
    assert np.array_equal(Columns(TABLE).encode(read_table(tmp_path / "t.parquet")), Columns(TABLE).encode(TABLE))


@pytest.mark.parametrize("content", ["a,b\n1,2,3\n", "a,b\n1,2\n1,2,3\n", ""], ids=["all", "one", "empty"])
def test_a_file_whose_rows_have_more_cells_than_names_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError):
        read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="should end in"):
        read_table(tmp_path / "t.xlsx")
