"""Tables in files: the same columns from every format, and one sentence for a file that is none."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from altmin.data.table_files import read_table

TEXT = 'age,city,"size, m2"\n20,Rome,1e2\n,"Bonn, DE",\n40,NA,-3\n'


def written(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


def expect(table: object) -> None:
    assert isinstance(table, dict)
    assert list(table) == ["age", "city", "size, m2"]
    np.testing.assert_array_equal(table["age"], [20, np.nan, 40])
    assert table["city"].tolist() == ["Rome", "Bonn, DE", None]
    np.testing.assert_array_equal(table["size, m2"], [100, np.nan, -3])


@pytest.mark.parametrize(
    "name, content",
    [
        ("t.csv", TEXT.encode()),
        ("t.csv", TEXT.replace("\n", "\r\n").encode()),
        ("t.csv", TEXT.encode("utf-8-sig")),
        ("t.csv", TEXT.rstrip().encode() + b"\n\n"),
        ("t.csv.gz", gzip.compress(TEXT.encode())),
        ("T.CSV", b'age;city;"size, m2"\n20;Rome;1e2\n?;Bonn, DE;null\n 40 ;n/a;-3\n'),
        ("t.tsv", b"age\tcity\tsize, m2\n20\tRome\t1e2\n\tBonn, DE\t\n40\t\t-3\n"),
    ],
    ids=["plain", "Windows", "with a mark", "empty lines", "gzip", "semicolons", "tabs"],
)
def test_csv_files_of_every_make_have_the_same_columns(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    expect(read_table(tmp_path / name))


def test_a_parquet_file_has_the_same_columns(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"age": [20, None, 40], "city": ["Rome", "Bonn, DE", None], "size, m2": [100, None, -3]})
    frame.astype({"city": "category", "age": "Int64"}).set_index(pd.Index([5, 6, 7])).to_parquet(tmp_path / "t.parquet")
    expect(read_table(tmp_path / "t.parquet"))


def test_a_column_stays_text_where_training_had_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "grade,a\n1,1\n2,2\n")
    assert read_table(path, ["grade"])["grade"].tolist() == ["1", "2"]
    assert read_table(path)["grade"].tolist() == [1.0, 2.0]


def test_a_first_column_without_a_name_is_the_index_of_pandas(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the first column of .* has no name, as that of an index, and is left out"):
        assert list(read_table(written(tmp_path / "t.csv", ",a\n0,5\n1,6\n"))) == ["a"]


def test_arrays_in_an_npz_file(tmp_path: Path) -> None:
    x, y = np.arange(12.0).reshape(3, 2, 2), np.array([[1], [0], [1]])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    found = read_table(tmp_path / "a.npz")
    np.testing.assert_array_equal(found["x"], x)
    assert found["y"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "it is empty"),
        ("a,b\n", "it has no rows"),
        ("a,b,a\n1,2,3\n", "it has two columns called 'a'"),
        ("a,,b\n1,2,3\n", "column 2 has no name"),
        ("1,2\n3,4\n", "its first line has numbers, such as '1', where the names of columns belong"),
        ("a,b\n1,2\n3\n", "line 3 has another number of cells than the first line: 1, not 2"),
        ('a,b\n1,"2\n', "unexpected end of data"),
        ("ä,b\n1,2\n", "it is no text in UTF-8"),
    ],
)
def test_a_csv_file_that_is_no_table_gets_a_sentence(content: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", content, "latin-1")
    with pytest.raises(ValueError, match=rf"t\.csv cannot be read as a table: .*{words}"):
        read_table(path)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"z": np.zeros((2, 2))}, "it has no array x of numbers"),
        ({"x": np.zeros(2)}, "it has no array x of numbers"),
        ({"x": np.array([["a"]], dtype=object)}, "no .npz file of numbers"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, r"its x is \(3, 2\) and its y \(2,\)"),
    ],
)
def test_other_arrays_get_a_sentence(arrays: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "t.npz")


def test_a_missing_file_and_an_unknown_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.csv"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"table\.xlsx should end in \.csv"):
        read_table(tmp_path / "table.xlsx")
